"""Network access of tools.

addresses    decides to which addresses a tool may connect
resolve      resolves a host once and judges its addresses
http_client  makes one HTTP exchange with hosts whose addresses are checked
"""
