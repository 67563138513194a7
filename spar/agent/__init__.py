"""The agent: its states, its parts, and its interface. The only folder that knows the class `Agent`.

agent           the class `Agent`, the interface for programs: start, stop, pause, resume, step, submit
parts           the parts of one agent, their construction, and their requests to one another
hosting         the services that an agent lends to its parts
lifecycle       the states of an agent: allowed operations, allowed transitions, and their order
submission      accepts messages and perceptions from any thread, and aborts runs; what only messages need
lifespan        opens and closes the modules of an agent, each in a task of its own
exchange        replaces and restarts the modules of an agent while it works
"""
