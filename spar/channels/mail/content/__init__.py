"""Content of a mail, from bytes to a text.

incoming     parses a mail; bounded; pure
text         the text of HTML; the new part of a text, without quotes and signature; pure
attachments  saves attachments into the workspace, within limits
"""
