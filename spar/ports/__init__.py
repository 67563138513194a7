"""Optional ports of parts besides their phase, and the port of a store.

any_part    tells whether a part has a port; ports of any part, and to the agent for parts that change its state
phases      the optional members of a sense module, an actor, a tool; a reflector that hears feedback
planners    the optional members of a planner
store       the port of a store in full: experiences, cycles, state, journal, sessions, care
nodes       the port of a store that several processes share, each of which owns some of the sessions
budgets     the port of budgets: limits, reservations, refusals
costs       costs of requests to models as they are stored, and their sums
channel     the port of a channel, the connection between the agent and people on another service, and of a notifier
webhook     the port of a sensor that others post to over HTTP
services    the ports of a model that turns texts into vectors, and of programs in the sandbox of the machine
breakpoints breakpoints, the sessions that stand at them, changes by hand, as values
rows        small rows by key in any store, the rows of one module, rows of one kind with a copy in memory
"""
