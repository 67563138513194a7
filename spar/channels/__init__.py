"""Channels on which people talk with the agent: their senders, their messages, and the messages to them.

conversations  the channels of one agent: received messages are checked and become runs
answers        sends the answers of runs to their senders, with drafts of them and the sign that the agent writes; other
               messages to their conversations
outbox         one channel or notifier: receiving and sending, with back-off and quarantine; the messages that wait, the
               answers that people are owed
forwarding     messages to people from nodes that do not have the channels
notices        notices of alerts: one for each episode and one for its end, until each notifier has sent them
senders        the table of senders: met, paired by a code, judged, allowed, denied, forgotten; durable rows
"""
