"""The commands of `spar`, a file for each group.

runs          gives work to the service: a message, a wait, an abort, a step
follow        follows a run and prints its answer as it is written
step          runs one phase without a running service
approvals     lists, shows and decides approvals
in_doubt      lists and resolves calls that may have had their effect
dead_letters  lists, retries and drops work that failed too often
cycles        lists past cycles and experiences from the store
transcript    prints the transcript of a session from the store
maintenance   copies, restores and verifies the store, and prints one page on its state
mcp           lists and accepts changed tools of MCP servers
config        writes, checks, shows and describes the configuration, and lists the parts
service       runs, shows, pauses, resumes, stops and reloads the service
"""
