"""Channels on which people talk with the agent: their senders, their messages, and the messages to them.

conversations  the channels of one agent: received messages become runs
answers        sends the answers of runs to their senders, other messages to their conversations
messages       checks the messages that a channel hands over, and finds their session; pure
supervisor     runs one channel: receiving and sending, each with back-off and quarantine
outbox         sends what waits for one channel or notifier, and leaves calls behind that hang
deliveries     the messages of one channel that wait to be sent, on disk, in order for each address
owed           the answers that people are owed, by run
drafts         answers that people see grow, and the sign that the agent writes
pieces         cuts a text that is longer than one message; pure
policy         the verdict on a sender: a person and a trust, or nobody; pure
codes          pairing codes: random, stored as digests, compared in constant time
senders        the table of senders: met, paired, allowed, denied, forgotten; durable rows
mail/          mail as a channel
"""
