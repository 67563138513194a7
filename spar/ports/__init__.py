"""The ports that a part may offer besides its phase, and the port of a store.

optional/   one Protocol for each optional ability of a part, and `offers`, which asks for one
store/      the port of a store in full: experiences, cycles, state, journal, sessions, care
agent       the port to an agent for a part that wants it to pause, stop, go on or give up
budgets     the port of budgets: limits, reservations, refusals
channel     the port of a channel: the way between the agent and people elsewhere
notifier    the port of a notifier of alerts: the notice that it is given, and its terms
webhook     the port of a sensor that is posted to over HTTP
trust       tells whether text from outside took part in a run
embedder    texts as vectors
programs    runs programs in the sandbox of the machine
small_rows  keeps small rows by key in any store, and the rows of one module
"""
