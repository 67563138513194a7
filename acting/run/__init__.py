"""One batch of calls, from arrival to result; a run of an agent has one for each cycle.

batch        runs calls: reads them, starts the ready ones, and collects their results
replay       gives calls of a batch that was cut off the results they had
asking       asks about ready calls, each in a task of its own
authorize    says whether a ready call may run: asks policy, hooks and people
confirm      asks a callback of the embedding program
turns        takes calls to their start: their turn, then their permits
start_order  the order in which calls with a shared resource start
workers      worker tasks that take ready calls from one queue
stopping     stops a batch: steered by a message, ended by a hook, or cancelled
journal      writes the beginning and the end of each call to the journal
results      collects data, messages and errors of ended calls into the result, and notices write conflicts
background   runs detached calls after their batch has ended

call/        one call, from the planner's words to its result
shared/      the parts that all batches of one executor share: clock, events, hooks, limits, budgets, tasks
"""
