"""The graph of calls: readiness as a pure function.

graph     turns references and `after` into dependencies and tells which call may start
nodes     calls as nodes, and the edges between them
index     an index of readers and writers for each segment of a path
deadlock  finds calls that can never start, and the reason
"""
