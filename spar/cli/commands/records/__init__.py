"""The commands that show stored records, whether the service runs or not.

incidents    lists incidents, shows the history of one, closes one
perceive     shows the result of the sense pipeline for lines
cycles       lists past cycles and shows one as a tree
cycle_tree   builds the tree of one cycle, with bars for its times
experiences  searches, shows, counts, exports, imports and forgets experiences
"""
