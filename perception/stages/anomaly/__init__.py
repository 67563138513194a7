"""Anomalies of numbers: a value is compared with the usual at its time of the day, and reported once per episode.

judge      the stage: readings in, openings and closings of anomalies out, in words
series     one series of numbers: its detector, its episode, its row
detector   the distance of a value from the usual at this time of the day, in usual spreads
days       the usual spread, and how far values go and how long they stay on a usual day
"""
