"""The commands that run and control the service, and show its state.

run          runs the service in the foreground, and stops it
status       shows the status, once or repeatedly, or live (`spar top`)
logs         shows the service's log file, and follows it over its rotation
attach       looks at sessions that stand at breakpoints, changes them, lets them go on
shell        a Python prompt with the agent loaded and top-level `await`
step         runs one phase without a running service
maintenance  copies, restores and verifies the store, and runs `spar doctor`
observe      prints alert rules, a dashboard and the OpenAPI document; tests notifiers
unit         installs the service under systemd
"""
