"""Approvals and calls in doubt as a person reads them.

approvals          renders an approval: the exact call, the reason, and warnings of deceptive text
pending_approvals  counts pending approvals for the log, the status and the metrics
in_doubt           renders calls in doubt and dead letters
"""
