"""The commands that run and control the service, and say how it is.

run          runs the service in the foreground
control      pauses, resumes, reloads and stops it
status       shows what it is doing, once or again and again
status_blocks  the status in people's words
logs         shows the service's log file, and follows it
log_file     reads the lines of a log file over its rotation
top          shows it live, and takes answers
step         runs one phase without a running service
maintenance  copies, restores and verifies the store, and prints one page on its state
notify       shows notifiers, and tries one
observe      prints alert rules and a dashboard
unit         has systemd run the service
"""
