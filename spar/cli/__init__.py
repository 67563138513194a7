"""The command line. Each file below `commands` is one group of commands; heavy imports happen inside them.

main     the table of commands, the options of `spar` itself, and the exit codes
client   asks the running service over its Unix socket
context  loads the configuration, reads the store and prints for every command
records  lists, shows and makes sure for the records that wait for people
lazy     a group of commands that imports a command when it is called
shell    a Python prompt with the agent loaded and top-level `await`
tables   lays out answers for people: tables, local times, one cycle as a tree
"""

from spar.cli.main import main as main
