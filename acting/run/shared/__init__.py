"""Parts that all batches of one executor share.

runtime    clock, events, hooks, limits, and the tasks that outlive a run
deadlines  one timer for all calls with the same timeout
late       stores messages and errors of ended detached calls for the next batch
budget     reserves a part of the agent's budgets for each call
"""
