"""Anomalies of numbers: a value against the same time of the last days, told once per episode.

judge      the stage: readings in, openings and closings of anomalies out, in words
series     one series of numbers: its detector, its episode, its row
detector   how far a value is from the usual at this time of the day, and how rare that is
"""
