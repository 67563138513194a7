"""The commands of `spar`, a folder for each group.

conversation  gives work to the service, follows it, and shows what was said
operate       runs and controls the service, and says how it is
records       shows what is kept: cycles, experiences
review        lists, shows and answers what waits for a person
setup         writes, checks and shows the configuration and the parts it names
"""
