"""Operations on how a service is set up.

parts      the attachments of the agent: their states, and why one is not attached
settings   the settings in force with their origins; a check of those that a reload would apply
nodes      the processes that run this agent together
services   the services of this machine and user
"""
