"""Batches of calls, from arrival to result. An agent makes one batch for each action of a planner.

Words of this folder. A *call* names a tool with parameters. Its *entry* is that tool as it is registered, with its
*terms*: effect (`read`, `idempotent`, `once`), timeout, retries, rate, resources, approval. The *board* holds the data
of a batch by path; a *reference* in a parameter is a path whose value comes from there. The *graph* knows which call
reads the path that another one writes; a call is *ready* when all values that it reads are there. A *step* is the state
of one call in its batch. The *scope* names the cycle, run and session of a batch and its trust. A *permit* is a limit
that a call takes before it starts: a slot of its tool, a resource, a rate. A *latent* tool has no handler: the planner
writes the result into the call. A *detached* call runs on after its batch. A *parked* call waits for people after its
batch has ended. A call is *in doubt* when it may have had its effect and must not be repeated.

batch        runs calls: reads them, starts the ready ones, and collects their results
replay       gives the calls of an interrupted batch the results that they had
asking       authorizes calls that may have to wait for an answer, each in a task of its own
authorize    decides whether a ready call may run: asks hooks, policy and people
confirm      asks a callback of the embedding program
turns        takes a ready call to its start: waits for its turn, then for its permits
start_order  the order in which calls with a shared resource start
workers      worker tasks that take calls which may start from one queue
stopping     stops a batch early: for a new message, by a hook, or by cancellation
journal      writes the beginning and the end of each call to the journal
results      writes values to the board, collects messages and errors into the result, notices write conflicts
background   runs detached calls after their batch has ended

call/        one call, from the planner's words to its result
shared/      the parts that all batches of one executor share: clock, events, hooks, limits, budgets, tasks
"""
