"""The commands that show stored records, whether the service runs or not.

incidents    shows the history of an incident, and the cycles that handled it
perceive     shows the result of the sense pipeline for lines
cycles       shows a past cycle as a tree, with bars for its times
experiences  shows, exports, imports and forgets experiences
"""
