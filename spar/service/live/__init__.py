"""The live events of the agent, for observers outside the process.

feed    buffers the newest events while there are readers, and gives them out
told    converts an event of the bus to JSON values: bounded, without secrets
"""
