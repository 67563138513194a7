"""The commands that run and control the service, and show its state.

run            runs the service in the foreground
control        pauses, resumes, reloads and stops it
status         shows the status, once or repeatedly
status_blocks  formats the status for people
logs           shows the service's log file, and follows it
log_file       reads the lines of a log file over its rotation
top            starts the terminal application that shows the service live
step           runs one phase without a running service
maintenance    copies, restores and verifies the store, and runs `spar doctor`
notify         shows notifiers, and tests them
observe        prints alert rules, a dashboard and the OpenAPI document
unit           installs the service under systemd
"""
