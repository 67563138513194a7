"""One cycle: sense – plan – act – reflect.

loop            runs the four phases of one cycle in order
core            the values that the parts of one agent share: name, clock, events, hooks, log, settings, state
tasks           runs the agent's own work in its event loop and thread, one piece after the other
setup           the modules of an agent and the terms of their phases, now in force
cycle           one cycle in progress, and the table (phase, policy) -> consequence of a failure
phase_runner    runs a coroutine under deadlines and leaves behind one that does not end
module_adapter  wraps a user's object or function as the module of a phase
plan_stream     a plan whose first calls run while the rest is still written
pacing          computes the wait between two cycles; pure
wake            a wait that ends at a time, or when it is called
"""
