"""Tools of MCP servers.

server       the tool source `mcp`: the tools of one server
connection   keeps one connection up: connects, lists tools, reconnects
config       reads how a server is reached: as a program, or at one host and port; a record of its other output
stdio        the transport over the standard streams of a program
http         the transport over streamable HTTP to one host with checked addresses
tools        makes tools from the definitions that a server lists: names, terms, bounds; values of answers; pure
pins         stores the accepted tools of a server and finds changes
"""
