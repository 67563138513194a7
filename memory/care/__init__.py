"""Care of the database file: opening, copies, checks, repair.

doctor     the commands backup, restore, verify and doctor, from outside
opening    opens the file with its writer and its readers
repair     replaces a damaged file at the start by the last good copy
backup     copies the file while it is in use, and restores a copy
integrity  verifies every page and every row
losses     notes of lost or damaged data, kept until they are acknowledged
lock       the advisory lock of one process
"""
