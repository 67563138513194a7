"""The live events of the agent, for who watches it from outside.

feed    keeps the newest events while somebody reads them, and hands them out
told    tells an event of the bus as JSON: bounded, without secrets, with the session that it belongs to
"""
