"""The sensor that other programs post to.

sensor      admits requests, reads them, accepts what they say durably
proof       judges who posts: a token, or a signature over the body and its time
formats     chooses the reader of a format; the generic one
alerts      reads what an Alertmanager posts: one perception for each alert
repository  reads what GitHub posts: one perception for each delivery
body        reads JSON within bounds, and any bytes as text
terms      what readers of formats find
"""
