"""Decisions about the work of a session. Pure: from its state to the facts that follow.

place  the queue that a message waits in, and the messages that go to make room for it
take   the work of the next cycle: interrupted work, or the run and the perceptions that wait

Nothing acts on these facts yet: the living objects decide for themselves, and the tests compare (`tests/shadow.py`).
"""
