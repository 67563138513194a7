"""Decisions about the work of a session and the pause of an agent. Pure: from a state, and what happened, to facts.

place        the queue that a message waits in, and the messages that go to make room for it
next_step    what a session does next: a cycle, or a wait and for what; the work of that cycle, the run that it begins;
             which sessions begin or continue a run, the one with the oldest work first
finish       whether a run ends with a cycle, and with which answer or error; what ends with it or with a conversation;
             what becomes of the work of a cycle: done, again, later, at the next start; retries
pause        what a request, a start or a stop changes of the pause of an agent
resume       what becomes of the work, the cycles and the calls that an earlier process left

Each is made around a table or is one short function. The session that has the state tells the facts, which changes its
state, and does what they lead to.
"""
