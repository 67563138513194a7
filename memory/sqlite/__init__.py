"""SQLite: one writer, some readers.

connection    opens the file with the driver's settings
session       the open file: writer, readers, and reads that see earlier writes
writer        the one thread that writes
transactions  runs groups of work as transactions, and repairs after disk errors
readers       read-only connections
schema        the format of the file and its migrations
seals         digests over all columns of each row
wal           the write-ahead log as a file
lock          the advisory lock of one process
"""
