"""The agent: its states, its parts, and its face. The only folder that knows the class `Agent`.

agent           the class `Agent`, what a program uses of it: start, stop, pause, resume, step, submit
parts           the parts of one agent, how they are put together, and what they ask of each other
approvals       lists, shows and decides approvals for a program that runs the agent in its own process
lifecycle       the states of an agent: allowed operations, allowed transitions, and their order
measured        the protocols through which metrics and status read an agent
served          the protocols through which a service and its servers drive an agent
steps           runs one phase at a time by hand
submission      accepts messages and perceptions from any thread, and aborts runs
stop_deadline   bounds the time of a stop, and ends the steps that exceed it
apply_settings  applies new settings to the parts of a running agent
lifespan        takes in, opens, exchanges, restarts and closes the modules of an agent
opening         opens and closes one object of the user in a task of its own
"""
