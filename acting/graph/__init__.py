"""The graph of calls: which call may start. Pure: no clock, no tasks, no tools.

graph         makes dependencies from references and `after`, and says which call may start
deadlock      finds calls that can never start, and the reason
index         an index by path: which calls write there, which reads wait there
nodes         calls as nodes, the edges between them, and the places of paths where they meet
"""
