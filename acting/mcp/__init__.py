"""Tools of MCP servers.

server       the tool source `mcp`: the tools of one server
connection   keeps one connection up: connects, lists tools, reconnects
config       reads how a server is reached: as a program, or at one host and port
stdio        the transport over the standard streams of a program
http         the transport over streamable HTTP to one host with checked addresses
tools        makes tools from the definitions that a server lists: names, terms, bounds
results      converts a server's answer into a value; pure
pins         stores the accepted tools of a server and finds changes
diagnostics  the bounds and error codes of both transports, and a record of the server's other output
"""
