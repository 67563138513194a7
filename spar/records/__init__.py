"""Values that are stored, and the ports of their stores.

journal     the values of the journal and its port, the counts of an agent's cycles
approvals   the values of approvals, their legal transitions, and the port of the approver
transcript  the values of a transcript and its port; the plan of a compaction, as hooks may change it
runs        a run as people and programs see it: receipt, status, row of a list
run_options the options of runs and of sessions
session     the values of a session, of its use by a message, and of its reset
senders     the names of senders of messages, and the row of a sender; messages to people that are to be sent
audit       the values of the audit log, and the draft of an entry
perceived   incidents, perceptions that were examined, kinds of lines
"""
