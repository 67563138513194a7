"""Sensor that follows files as they grow.

sensor    pushes lines as fast as they are taken, and stores the position in each file
follower  knows the followed files, through rotation, copies, truncation and restarts; blocking
file      reads one file from an offset; blocking
lines     splits bytes into lines and joins lines to records, within bounds; pure
"""
