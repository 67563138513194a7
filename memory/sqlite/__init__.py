"""SQLite: the file, its connections and its care.

writer         the writer's thread on a file
maintenance    the idle work of that thread: checkpoints, retention, reserve, copies
transactions   runs groups of work as transactions, and repairs after disk errors
database       opens the file with the driver's settings
connection     the connection to SQLite as the statements want it
full_text      the full text index
schema         the format of the file and its migrations; all tables are in `formats/`
seals/         digests over all columns of each row
wal            the write-ahead log as a file
wal_watermark  the safe length of the write-ahead log, in a file beside it
disk_reserve   a reserve of disk space for the day on which the disk is full
"""
