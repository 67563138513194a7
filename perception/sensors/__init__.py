"""Built-in sensors, one file each. A new sensor is copied from the most similar one and registered by one entry point.

directory  reports files that appear, change or vanish
files      the known files of one directory; pure
folder     lists and reads a directory, blocking
watch      waits for file events in a thread
command    reports the output of a program, on a schedule
host       reports high use of load, memory and disks
messages   the terms under which a message becomes a perception
schedule   reports times: a moment, an interval, a cron line
crontab    cron lines as crontab(5) defines them
tail/      follows files as they grow
webhook/   receives the posts of other programs
web/       sensors that read the web, and their common code
"""
