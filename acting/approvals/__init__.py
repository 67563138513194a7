"""Approvals: whether a call may run, asked of policy and people; `run/authorize` asks them.

policy       decides by rules, terms and trust: run, ask, or deny; pure
taint        traces data from outside through the calls that read it
service      the approvals of one executor, built from its settings
queue        the pending approvals as durable rows: ask, decide, use, expire
decisions    the rules of the queue: legal changes, what a decision needs, which question is a new one; pure
records      durable rows of one kind, changed by compare-and-set
grants       standing answers for one exact call, for a time
parking      finds out during a run which calls it leaves behind
deferred     keeps calls without an answer and hands them out in the cycle after it
expiry       the timers of approvals, and those that wait for an answer
fingerprint  binds an approval to one exact call
digest       writes canonical JSON and its SHA-256; pure
"""
