"""Care of the database file: copies, checks, repair.

doctor         the commands backup, restore, verify and doctor, from outside
backup         copies the file while it is in use, and restores a copy
maintenance    the idle work of the writer's thread: checkpoints, retention, reserve, copies
integrity      verifies every page and every row
repair         replaces a damaged file at the start by the last good copy
losses         notes of lost or damaged data, kept until they are acknowledged
disk_reserve   a reserve of disk space for the day on which the disk is full
wal_watermark  the safe length of the write-ahead log, in a file beside it
"""
