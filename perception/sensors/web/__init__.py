"""Sensors that read the web, and their common parts.

poll          watches an address, or a value or element of it, for changes
prometheus    asks a Prometheus: each series with its value
feed          tells new entries of a feed
feed_entries  reads a feed in a process of its own
asking        asks a server within bounds, and only for what has changed
html          makes text of HTML and of parts of it
pointer       JSON pointers (RFC 6901) into values
"""
