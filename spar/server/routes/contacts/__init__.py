"""Handlers about those who talk with the agent.

channels   channels below `/v1`, and the messages that they could not deliver
senders    senders of messages below `/v1`: list, pair, allow, deny, forget
"""
