"""Handlers about channels, people and programs that communicate with the agent.

channels   channels, the messages that they could not deliver, and notifiers
senders    senders of messages: list, pair, allow, deny, forget
tokens     access tokens of programs: create, list, revoke
"""
