"""The built-in sensors, a file each; a new one is copied from the nearest and registered by one entry point.

directory  notices files that appear, change or vanish
files      the known files of one directory; pure
folder     lists and reads a directory, blocking
watch      waits for file events in a thread
command    tells what a program says, on a schedule
printed    the output of a program as lines, JSON or one text; pure
host       notices high load, memory and disk use
messages   the terms under which a message becomes a perception
schedule   notices times: a moment, an interval, a cron line
crontab    cron lines as crontab(5) defines them
tail/      follows files as they grow
webhook/   hears what other programs post
web/       what sensors that read the web share
"""
