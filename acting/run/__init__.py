"""One batch of calls, from arrival to result; a run of an agent has one for each cycle.

batch        runs calls: reads them, starts the ready ones, and collects their results
workers      worker tasks that take ready calls from one queue
start_order  the order in which calls with a shared resource start
authorize    asks policy, hooks and people whether a ready call may run
confirm      asks a callback of the embedding program
journal      writes the beginning and the end of each call to the journal
results      collects data, messages and errors of ended calls into the result, and notices write conflicts
background   runs detached calls after their batch has ended

call/        one call, from the planner's words to its result
shared/      the parts that all batches of one executor share: clock, events, hooks, limits, budgets, tasks
"""
