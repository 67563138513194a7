"""One cycle: sense – plan – act – reflect.

loop            runs the four phases of one cycle in order
core            the values that the parts of one agent share: name, clock, events, hooks, log, settings, state
tasks           runs the agent's own work in its event loop and thread; exclusive work runs one piece at a time
setup           the modules of an agent, and the settings of their phases and of the pace
cycle           one cycle in progress, and the table (phase, policy) -> consequence of a failure
phase_runner    runs a coroutine under deadlines and leaves behind a phase that does not end
module_adapter  wraps a user's object or function as the module of a phase
plan_stream     a plan whose first calls run while the planner still writes
pacing          computes the wait between two cycles; pure
wake            waits of coroutines that end at a time or when they are woken

Words: A *module* is the user's code for one phase. A *session* is one line of work with its own loop; the *standing*
session polls the sensors, the others deal with messages. A *run* is the work on one message, from its arrival to its
answer; it may take several cycles. A *hook* is a user's function that may change or deny what a cycle is about to do.
The *journal* records each beginning and end in a database, so that a restarted process can continue *interrupted* work.
An *actor* is the module of the phase act; it carries out the *calls* of an *action*, and a call runs one tool.
A *fault* is an error as data. The *grace* of a phase are the seconds between its cancellation and leaving it behind.
"""
