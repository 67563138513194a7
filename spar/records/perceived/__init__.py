"""Stored values of perception: incidents, and examined perceptions.

incidents  stored incidents: one problem, what belongs to it, how it developed
lines      kinds of lines, as far as others read their rows
examined   results of sending perceptions through a pipeline for inspection
"""
