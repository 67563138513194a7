"""Batches of calls, from arrival to result. An agent makes one batch for each action of a planner.

Words of this folder. The *executor* is the actor that runs the batches; the *embedding program* made it. A *call* names
a tool with parameters. Its *entry* is that tool as it is registered, with its *terms*: effect (`read`, `idempotent`,
`once`), timeout, retries, rate, resources, approval. It is *free* when these never make a call wait before its start,
and *let* when they demand no approval. The *activity* of a tool is the handler that carries it out. A *latent* tool has
no handler: the planner writes the result into the call. The *meta* of a call are its keys that begin with `_` and have
no field of their own, such as `_detach`. A *fault* is an error as data.

A call is *proposed*, then *held*, then *attempted* (once or more often), then *ended*. A *hold* is a reason not to
start it yet. Graph and board hold it until the values that it reads are there and the calls in its `after` have ended
well; then it is *ready*, and takes the other holds of its tool, one after the other (`holds`).

The *board* holds the data of a batch by path; the first name of a path is the *kind* of the data. A *message* is a
piece of this data with its kind. Data of an *instance* (a name in the call) is visible only to calls of that instance.
A *reference* in a parameter is a path whose value comes from the board. The *output path* of a call is where its value
is written; it may have *alternatives* (`a || b`), of which one is written.

The *graph* knows which call reads the path that another one writes; a call is *doomed* when it cannot become ready any
more. A *step* is the state of one call in its batch. A *permit* is a hold by a limit: a slot of its tool, a resource, a
rate. The *scope* names the cycle, run and session of a batch and its *trust*: whether text from outside (untrusted) may
have led to its calls. A *detached* call runs on
after its batch. A call is *steered* when it is skipped because a new message has arrived. To *leave behind* a task
means to continue without it although it still runs: it ignored its cancellation for the *grace*, a number of seconds. A
call is *in doubt* when it may have had its effect and must not be repeated.

An *approval* is a question to people about one exact call, with its answer; it lets that call run once. A *grant* is a
standing permission by people for one exact call, for a time. A *parked* call waits for people after its batch has
ended: the batch stores it, and the next cycle of its session after the answer *resumes* it. The *journal* is a database
of the beginnings and ends of calls, from which the next process continues an *interrupted* batch. A *crashpoint* is a
place at which a test lets the process die; it does nothing otherwise.

batch        runs calls: starts them when nothing holds them, in worker tasks, and collects their results; stops early
call_state   the state of one call: its checks, its attempts, its result
checks       what a plan's item means as a call, and whether a value is as promised and expected; pure
attempt      goes on with calls that wait: deadlines, further attempts where the effect allows; detached calls
results      writes values to the board, notices write conflicts; errors and status of a batch; known results
holds        the reasons not to start a call yet; whether it may run by rules, hooks and people
order        the holds by order, resources and budgets; writes the beginning and the end of each call to the journal
parked       stores calls without an answer and starts them again in the cycle after it; an executor's approvals
runtime      shared by all batches of an executor: clock, events, hooks, limits, tasks, late results
"""
