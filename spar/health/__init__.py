"""The health of an agent: its alerts and their remedies.

health           raises and closes alerts, and judges each cycle
ladder           takes the steps of recovery when a phase keeps failing
alerts           the kinds of alerts, and one open alert
error_reporting  reports errors of modules, hooks and handlers to the log, the events and the health
streaks          counts failures in a row by session and phase
watched          finds from outside what is wrong with an agent
watchdog         watches the event loop from a thread of its own
models           knows how the planner's models are, and what is wrong with what they are told
resources        measures the memory of the process and the room on its disk
relief           sheds caches, drains or refuses work when memory or disk run short
"""
