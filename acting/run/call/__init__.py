"""One call, from the planner's words to its result.

call_state      the state of one call in a run
prepare         reads a planner's output as calls; pure
prescriptions   merges a tool's prescriptions with a call's choices; pure
prepared_call   a ready call with resolved and validated parameters
attempt         attempts a call with a deadline, and retries it where its effect allows
tool_context    the `ToolContext` that a tool can ask for
postconditions  checks the expectations of a call after it ended
"""
