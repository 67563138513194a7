"""The graph of calls: readiness as a pure function.

graph         turns references and `after` into dependencies and tells which call may start
deadlock      finds calls that can never start, and the reason
requirements  the values that calls wait for
index         an index of readers and writers for each segment of a path
nodes         calls as nodes, and the edges between them
"""
