"""Approvals: the decision of policy and people whether a call may run; `run/holds` asks for it.

policy     decides by rules, terms and trust: run, ask, or deny; tracks data from outside through calls; pure
queue      questions to people as durable rows: ask, decide, use, expire
decisions  the rules of the queue: legal changes, contents of a decision, the exact call that it is about; grants
"""
