"""Replay: recorded cycles are decided again, without effects, by a configuration of today or another one.

A planner is made from a configuration and given the recorded inputs: perceptions, results, conversation, experiences
and the time of then. It decides, and nothing else happens: it has no tool, no writing store, no sender and no network;
an answer of a model comes from the record.

tally       numbers of decisions that were made again
tape        recorded cycles of a store, and the inputs of each decision
deciding    a planner of a configuration without effects, in a past that cannot be written; its decisions
difference  compares two decisions; pure
reasons     says why a recorded cycle went as it did; pure
again       decides one recorded cycle again, and says what differs
backtest    decides the cycles of a time again, and counts what differs
shadow      decides beside a running service, in a thread of its own
page        a page of HTML about a backtest
"""
