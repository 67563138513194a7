"""Incidents: what belongs to one trouble, across batches.

keeping    keeps their rows with the cycles that deal with them, publishes events, closes what is quiet
register   opens, grows, closes and reopens incidents; bounded
notices    the perceptions by which planners are told of that
matching   finds the incident that something belongs to
evidence   adds to an incident what is kept of it, within bounds
things     reads a perception as a thing: its severity, its state, its identity
entities   finds what a perception is about: hosts, services, files, people; in linear time
settings   the table `[perception.incidents]`
"""
