"""The sensor that follows files as they grow.

sensor    hands lines over as fast as they are taken, and keeps how far it has come
follower  knows the files that are followed, through rotation, copies, truncation and restarts; blocking
file      reads one file from an offset on; blocking
lines     cuts bytes into lines and lines into records, within bounds; pure
"""
