"""Network access of tools.

addresses    decides to which addresses a tool may connect
http_client  makes one HTTP exchange with hosts whose addresses are checked
"""
