"""Optional ports of parts besides their phase, and the port of a store.

optional/   one Protocol for each optional ability of a part, and `offers`, which tells whether a part has one
store/      the port of a store in full: experiences, cycles, state, journal, sessions, care
agent       the port to an agent for a part that wants it to pause, stop, continue or fail
budgets     the port of budgets: limits, reservations, refusals
costs       costs of requests to models as they are stored, and their sums
channel     the port of a channel: the connection between the agent and people on another service
notifier    the port of a notifier of alerts: the notice that it delivers, and its settings
webhook     the port of a sensor that others post to over HTTP
embedder    the port of a model that turns texts into vectors
programs    the port that runs programs in the sandbox of the machine
breakpoints breakpoints, the sessions that stand at them, changes by hand, as values
small_rows  stores small rows by key in any store, and the rows of one module
kept_rows   rows of one kind with a copy in memory, changed by compare-and-set
"""
