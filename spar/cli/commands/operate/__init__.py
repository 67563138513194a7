"""The commands that run and control the service, and show its state.

run          runs the service in the foreground, and stops it
status       shows the status, once or repeatedly, or live (`spar top`)
attach       looks at sessions that stand at breakpoints, changes them, lets them go on
shell        a Python prompt with the agent loaded and top-level `await`
observe      prints alert rules, a dashboard and the OpenAPI document; tests notifiers
unit         installs the service under systemd; shows and follows its log file, over its rotation
"""
