"""The command line. Each file below `commands` is one group of commands; heavy imports happen inside them.

main     the table of commands, the options of `spar` itself, and the exit codes
client   asks the running service over its Unix socket
context  loads the configuration, reads the store and prints for every command
records  lists, shows and makes sure for the records that wait for people
complete completes words that only the running service knows
doctor   one page on the state of an installation
top      draws live what the agent does
templates  the files that `spar new` writes
lazy     a group of commands that imports a command when it is called
shell    a Python prompt with the agent loaded and top-level `await`
blocks   the blocks that an answer is made of, as plain lines; the place where text is made harmless and short
screen   draws blocks on a terminal (rich)
tables   values as people read them: local times, durations, models
"""

from spar.cli.main import main as main
