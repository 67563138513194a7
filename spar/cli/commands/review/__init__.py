"""The commands that list, show and answer what waits for a person.

approvals     lists, shows and decides approvals
in_doubt      lists and resolves calls that may have had their effect
dead_letters  lists, retries and drops work that failed too often
channels      shows channels, and has undelivered messages tried again or dropped
sensors       lists sensors, and has one in quarantine tried again
learn         teaches which intent or kind a text has, lists and forgets examples
senders       lists, pairs, allows, denies and forgets senders of messages
tokens        makes, lists and revokes tokens of programs
"""
