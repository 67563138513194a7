"""Sensor that other programs post to.

sensor      admits requests, reads them, accepts their contents durably
proof       checks the sender: a token, or a signature over the body and its time
formats     chooses the reader of a format; holds the generic reader
alerts      reads the posts of an Alertmanager: one perception for each alert
repository  reads the posts of GitHub: one perception for each delivery
body        reads JSON within bounds, and any bytes as text; the result type of the readers
"""
