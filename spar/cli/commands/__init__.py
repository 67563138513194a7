"""The commands of `spar` that do not follow from the table of operations.

runs         sends a message, waits for a run, follows it, runs one phase
run          runs the service in the foreground, and stops it
status       shows the status, once or repeatedly; its rows, which `spar top` shows, too
attach       looks at sessions that stand at breakpoints, changes them, lets them go on
shell        a Python prompt with the agent loaded and top-level `await`
observe      prints alert rules, a dashboard and the OpenAPI document; tests notifiers
unit         installs the service under systemd; shows and follows its log file, over its rotation
perceive     shows the result of the sense pipeline for lines
memory       exports, imports, copies, moves and verifies the memory
replay       decides recorded cycles again, and says or counts what differs
config       writes a first configuration; checks, shows and describes it, and lists the parts that it can name
new          writes a package for a user's own part
"""
