"""Stored values of perception: incidents, and examined perceptions.

incidents  stored incidents: one problem, what belongs to it, how it developed
examined   results of sending perceptions through a pipeline for inspection
"""
