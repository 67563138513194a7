"""The ports that a part may offer besides its phase, and the port of a store.

optional    one Protocol for each optional ability of a part, and `offers`, which asks for one
store/      the port of a store in full: experiences, cycles, state, journal, sessions, care
agent       the port to an agent for a part that wants it to pause, stop, go on or give up
budgets     the port of budgets: limits, reservations, refusals
channel     the port of a channel: the way between the agent and people elsewhere
trust       tells whether text from outside took part in a run
small_rows  keeps small rows by key in any store, and the rows of one module
"""
