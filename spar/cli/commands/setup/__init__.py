"""The commands that write, check and show the configuration.

config      writes a first configuration; checks, shows and describes it, and lists the parts that it can name
evaluate    plays cases against the configured model (`spar eval`)
new         writes a package for a user's own part
completion  installs the completion of commands in a shell
mcp         lists and accepts changed tools of MCP servers
"""
