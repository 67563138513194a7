"""The commands that write, check and show the configuration.

profiles    writes a first configuration: the shipped one, or a profile for one use
config      checks, shows and describes the configuration, and lists the parts that it can name
new         writes a package for a user's own part
completion  installs the completion of commands in a shell
mcp         lists and accepts changed tools of MCP servers
"""
