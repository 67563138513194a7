"""Public methods of an open memory, one module for each kind of data.

open_memory  base class: the file and the journal of an open memory
experiences  stores, recalls, judges, deletes, exports and imports experiences
cycles       records, lists and finds cycles; returns what recovery has left to people
state        small state: values by key, small rows, versioned records
"""
