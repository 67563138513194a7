"""Channels on which people talk with the agent: who is who there.

policy   the verdict on a sender: a person and a trust, or nobody; pure
codes    pairing codes: made at random, kept as digests, compared in constant time
senders  the table of senders: met, paired, allowed, denied, forgotten; durable rows
"""
