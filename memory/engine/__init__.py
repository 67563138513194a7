"""Engine of the memory: what a database needs to be written by one thread and read by some.

session       the open database: writer, read-only connections, and reads that see earlier writes
writer        the one thread that writes, and the bounded queue that it writes from
maintenance   the schedule of the idle work of that thread
transactions  the port of transactions of groups of work, and units of work in them
own_keys      keys that belong to the memory; the epoch and fences of an opening
hash_chain    the chain of hashes over the events
connection    the port between the statements and the database
"""
