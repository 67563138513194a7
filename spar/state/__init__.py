"""State of the sessions of an agent: what their facts add up to, and nothing else.

work     the values in a state: messages and runs, the cycle with its calls, failed and interrupted work
apply    the state of a session, and the only code that changes it: addition of a fact; the states of all sessions

A state is plain values, without task, timer, callback or lock. It says what is open, not what was. Whatever a restart
must know is in it. Its times are wall times; what a process measures for itself is elsewhere.
"""
