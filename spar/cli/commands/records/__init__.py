"""The commands that show what is kept, whether the service runs or not.

incidents    lists incidents, tells the story of one, closes one
perceive     sends lines through the pipeline, for a look
cycles       lists past cycles and shows one as a tree
cycle_tree   one cycle as a tree, its times as bars
experiences  recalls and exports experiences
audit        shows the audit log
"""
