"""State of the sessions of an agent: what their facts add up to, and nothing else.

work     the values of the state: messages and runs, the cycle with its calls, failed and interrupted work
apply    adds a fact to a state, the only code that changes one; the states of all sessions of one agent

A state is plain values, without task, timer, callback or lock. It says what is open, not what was. Whatever a restart
must know is in it. Its times are wall times; what a process measures for itself is elsewhere.
"""
