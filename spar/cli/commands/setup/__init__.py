"""The commands that write, check and show the configuration.

init        writes a configuration to begin with
profiles    selections of the shipped configuration, for one use each
config      checks, shows and describes it, and lists the parts it can name
new         writes a package for a part of one's own
completion  has a shell complete commands
mcp         lists and accepts changed tools of MCP servers
"""
