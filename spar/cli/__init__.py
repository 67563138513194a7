"""The command line. Each module below `commands/` has one command or group; heavy imports happen when it runs.

main        the table of commands, with those of other packages; the options of `spar` itself; exit codes
client      the client of the running service: how its errors end a command, and statuses of other versions
context     the common options and their types; loads the configuration, prints answers
offline     the store of an agent without its service
nouns       the commands that follow from the table of operations: a group for each noun
complete    completes words that only the running service knows; installs the completion in a shell
doctor/     `spar doctor`: checks of the installation, the machine, the memory
commands/   the other commands
templates/  the files that `spar new` writes
blocks      the blocks of an answer, as plain lines; escapes and shortens texts, formats values
screen      draws blocks on a terminal (rich)
printer     prints the events of runs: answers as they are written, calls, ends; live events as one line each
cycles      a past cycle as a tree, with bars for its times; an incident with its cycles
"""

from spar.cli.main import Place as Place
from spar.cli.main import main as main
