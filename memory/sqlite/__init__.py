"""SQLite: one writer, some readers.

session        the open file: writer, readers, and reads that see earlier writes
writer         the one thread that writes
job_queue      the bounded queue that it writes from
maintenance    the idle work of that thread: checkpoints, retention, reserve, copies
transactions   runs groups of work as transactions, and repairs after disk errors
readers        read-only connections
database       opens the file with the driver's settings
schema         the format of the file and its migrations; all tables are in `formats/`
seals/         digests over all columns of each row
hash_chain     the chain of hashes over the events
wal            the write-ahead log as a file
wal_watermark  the safe length of the write-ahead log, in a file beside it
disk_reserve   a reserve of disk space for the day on which the disk is full
"""
