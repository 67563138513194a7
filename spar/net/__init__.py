"""Network access of tools and sensors, and the place of the control socket.

addresses    decides to which addresses a part may connect
resolve      resolves a host once and judges its addresses
http_client  makes one HTTP exchange with hosts whose addresses are checked
html         parses HTML of strangers within bounds

control_socket  names the Unix socket of a service, opens a short path to it, and connects to it
local_sockets   lists the sockets of the services of this machine and user
"""
