"""Handlers about those who talk with the agent, and programs that ask it.

channels   channels below `/v1`, and the messages that they could not deliver
senders    senders of messages below `/v1`: list, pair, allow, deny, forget
tokens     tokens of programs below `/v1`: make, list, revoke
"""
