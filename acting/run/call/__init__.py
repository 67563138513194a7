"""One call, from the planner's words to its result.

The steps of a call are decode, prepare, authorize, journal, attempt, normalize, apply and record; those that are not
here lie in the folder above: `authorize`, `journal`, `results` (apply) and `batch` (record).

prepare     decodes a planner's output as calls, merges its tool's prescriptions; pure
call_state  the state of one call in a run; prepares its parameters
attempt     attempts a call with a deadline, and again where its effect allows
normalize   judges what a tool returns: fit to keep, as promised, as the call expects
"""
