"""Incidents: perceptions that belong to one trouble, across batches.

keeping    stores the rows of incidents with their cycles, publishes events, closes quiet incidents
register   opens, grows, closes and reopens incidents; bounded
notices    the perceptions that report the changes of incidents to planners; what is passed on of a perception
deadlines  when each open incident ends if nothing new comes, and which is the first
matching   finds the incident that a perception belongs to
evidence   adds perceptions and steps to an incident, within bounds
things     reads a perception as the newest state of a thing
entities   finds the hosts, services, files and people that a perception is about; in linear time
settings   the table `[perception.incidents]`
"""
