"""Budgets: how much may be used in a window of time, and the measures when it is used up.

windows      computes the windows of the calendar, the use in each, and the stage that it reaches; pure
budgets      reserves, uses and settles amounts, and publishes events as budgets are used up
enforcement  turns an agent from models to its rules, then pauses it, as its budgets are used up
"""
