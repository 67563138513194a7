"""Budgets: how much may be used in a window of time, and the measures when it is used up.

windows      computes the windows of the calendar, the use in each, and the mark that it reaches; pure
budgets      reserves, uses and settles amounts, and publishes events as budgets are used up
costs        sums up on disk what requests to models have cost: by day, model, session and rule
enforcement  carries out the measures: the agent plans by its rules without models, and in the end it is paused
"""
