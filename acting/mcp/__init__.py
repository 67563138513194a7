"""Tools of MCP servers.

server       the tool source `mcp`: the tools of one server
connection   keeps one connection up: connects, lists tools, reconnects
config       reads the place of a server: a program, or one host and port
stdio        the transport over the standard streams of a program
http         the transport over streamable HTTP to one host with checked addresses
tools        makes tools of a server's offers: names, terms, bounds
results      converts a server's answer into a value; pure
pins         stores the accepted tools of a server and finds changes
diagnostics  the bounds and errors that both transports share, and the server's own messages
"""
