"""Network access of tools and sensors.

addresses    decides to which addresses a part may connect
resolve      resolves a host once and judges its addresses
http_client  makes one HTTP exchange with hosts whose addresses are checked
"""
