"""The health of an agent: its alerts and their remedies.

health           the open alerts, and what an agent without trouble asks of them
judge            opens and closes alerts, judges each cycle and run, the process's memory and its disk's free space
alerts           the kinds of alerts, one open alert, and the duration beyond which a cycle is slow
ladder           takes the steps of recovery when a phase keeps failing
error_reporting  reports errors of modules, hooks and handlers to the log, the events and the health
reported         opens alerts for sensors and channels in quarantine, and for approvals that wait too long
streaks          counts failures in a row by session and phase
watchdog         examines the event loops and all agents from outside, in a thread of its own
models           keeps the states of the planner's models, problems of their prompts, and tokens and use of caches
relief           clears caches, drains or refuses work when memory or disk run short
"""
