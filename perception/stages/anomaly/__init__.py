"""Anomalies of numbers: a value is compared with the same time of the last days, and reported once per episode.

judge      the stage: readings in, openings and closings of anomalies out, in words
series     one series of numbers: its detector, its episode, its row
detector   the distance of a value from the usual at this time of the day, and its rarity
"""
