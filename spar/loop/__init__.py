"""One cycle: sense – plan – act – reflect.

core            the values that the parts of one agent share: name, clock, events, hooks, log, settings, state; its own
                work in its event loop and thread, exclusive work one piece at a time; the deadline of a stop
setup           the modules of an agent, each a user's object or function; the settings of their phases and of the pace
cycle           one cycle in progress, and the consequence of a failed phase by its policy
phase_runner    runs a coroutine under deadlines and leaves behind a phase that does not end
plan_stream     a plan whose first calls run while the planner still writes

Words: A *module* is the user's code for one phase (sense module, planner, actor, reflector). Each phase has a
*product*: sense returns *perceptions* (what the sensors noticed), plan an *action* (a list of calls, an answer, or
both), act the action's *result*, and reflect a *reflection* on it. A perception is *pushed* when a program hands it to
the agent, instead of a sensor that is polled. A *policy* is the setting that decides what a failure of a phase leads
to. A *session* is one line of work with its own loop; the *standing* session polls the sensors, the others deal with
messages. A *run* is the work on one message, from its arrival to its answer; it may take several cycles. A *hook* is a
user's function that may change or deny what a cycle is about to do. The *journal* records each beginning and end in a
database, so that a restarted process can continue *interrupted* work. The *actor* is the module of the phase act. It
carries out the *calls* of an action; a call runs one tool. A *fault* is an error as data. To *leave behind* a task
means to continue without it although it still runs: it ignored its cancellation. The *grace* of a phase is the number
of seconds between its cancellation and leaving it behind.
"""
