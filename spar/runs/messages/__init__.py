"""Messages of a run to people before its end, and answers in blocks.

interim      sends blocks of an answer, thoughts, and lines about calls, before a run has ended
text_blocks  splits a text that is being written into blocks of message size; pure
call_lines   describes a call that has ended in one line; pure
"""
