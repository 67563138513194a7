"""Sessions as people deal with them: found, set, begun anew, stopped.

session_control  lists, shows, sets and forgets sessions; what doors and commands stand on
commands         carries out what people command in their messages
session_records  the rows of the sessions: those used last in memory, all of them in the store
reset_times      says when a conversation is over by itself; pure
forgetting       has no message accepted for a session while what is kept of it is deleted
resets           begins a session anew: ends its work, and has its transcript be read from here on
option_checks    checks the options of runs and sessions, by the planner and by who sends them
run_stops        calls runs off, wherever they are
"""
