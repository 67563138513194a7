"""Sensors that read the web, and their common parts.

poll          watches an address, or a value or element of it, for changes
prometheus    queries a Prometheus: each series with its value
feed          reports new entries of a feed
feed_entries  reads a feed in a separate process
asking        requests an address within bounds, and only if it has changed
html          converts HTML and parts of it to text
pointer       JSON pointers (RFC 6901) into values
"""
