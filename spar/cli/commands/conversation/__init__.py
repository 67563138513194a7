"""The commands that send messages to the service and show runs.

chat/        a conversation in a terminal or a pipe: streaming, steering, approvals, history
runs         sends a message, waits for a run, follows it, runs one phase
"""
