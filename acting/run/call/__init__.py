"""One call, from the planner's words to its result.

call_state      the state of one call in a run, with its resolved and validated parameters
prepare         reads a planner's output as calls, merges its tool's prescriptions; pure
attempt         attempts a call with a deadline, and retries it where its effect allows
normalize       makes what a tool returns fit to keep, and checks the expectations of the call
"""
