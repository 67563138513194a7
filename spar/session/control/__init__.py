"""Operations of people on sessions: list, change, reset, stop, delete.

session_control  lists, shows, changes and deletes sessions, for HTTP, the command line and commands in messages
session_views    sessions as people see them, and the pages of their list
session_records  the records of the sessions: the last used ones in memory, all of them in the store; when one is over;
                 checks of their options against the planner and the sender's trust
resets           aborts runs, whether they wait or run, and resets a session: its transcript starts anew
"""
