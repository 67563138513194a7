"""The sensors in the box, a file each; a new one is copied from the nearest and registered by one entry point.

Each imports its library when it is made or opened, so that listing the sensors costs nothing.
"""
