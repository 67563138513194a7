"""The commands that show stored records, whether the service runs or not.

perceive     shows the result of the sense pipeline for lines
cycles       shows a past cycle as a tree, with bars for its times; the history of an incident, with its cycles
experiences  shows, exports, imports and forgets experiences
"""
