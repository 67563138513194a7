"""The commands of `spar`, a file for each group.

conversation  gives work to the service, follows it, and shows what was said
review        lists, shows and answers what waits for a person
step          runs one phase without a running service
cycles        lists past cycles and experiences from the store
maintenance   copies, restores and verifies the store, and prints one page on its state
mcp           lists and accepts changed tools of MCP servers
unit          has systemd run the service
observe       prints alert rules and a dashboard
config        writes, checks, shows and describes the configuration, and lists the parts
service       runs, shows, pauses, resumes, stops and reloads the service
"""
