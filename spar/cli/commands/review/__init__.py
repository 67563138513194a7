"""The commands with which people decide: about waiting records, senders, tokens and examples.

approvals     lists, shows and decides approvals
in_doubt      lists and resolves calls that may have had their effect
dead_letters  lists, retries and drops work that failed too often
channels      lists channels, and retries or drops undelivered messages
sensors       lists sensors, and restores one from quarantine
learn         teaches the intent or kind of texts, lists and forgets examples
senders       lists, pairs, allows, denies and forgets senders of messages
tokens        creates, lists and revokes access tokens of programs
"""
