"""Operations: a table of all that people and programs can do with an agent, each said once.

Routes, client, audit log, commands, completion and the pages of reference are made from the table.

operation   one operation: request, scope, input and answer, entry in the audit log, command; streams of events; the
            table of all, and the operations of a noun
fields      the fields of an input: their texts as values, the accepted values as text

agent       status, pauses, reload, stop, single steps, live events
setup       attachments, settings in force, the services of this machine, the nodes
runs        runs: submit, list, show, wait, follow, abort, give feedback; what they cost
sessions    sessions: list, show, set, reset, forget; the next request to the model
history     past cycles, what comes next, what changed, and the audit log
knowledge   why a past cycle went as it did; rules, examples that perception learns from, abilities of tools
memory      experiences and transcripts: search, show, explain, count, forget, import
perceived   incidents, sensors
review      approvals and grants, calls in doubt, dead letters
access      channels, undelivered messages, notifiers; senders of messages, access tokens of programs
breakpoints breakpoints, and the sessions that stand at them
"""
