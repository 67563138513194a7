"""The command line. Each module below `commands/` has one command or group; heavy imports happen when it runs.

main        the table of commands in groups, each imported when it is called; the options of `spar` itself; exit codes
client      the client of the running service: how its errors end a command, and statuses of other versions
context     the common options: loads the configuration, prints answers
offline     the store of an agent without its service
nouns       the commands that follow from the table of operations: a group for each noun
params      types of arguments and options: times, durations, JSON, words
complete    completes words that only the running service knows
doctor/     the checks of `spar doctor`
top/        the terminal application `spar top`
commands/   the commands, a folder for each subject
templates/  the files that `spar new` writes
blocks      the blocks of an answer, as plain lines; escapes and shortens texts, formats values
screen      draws blocks on a terminal (rich)
printer     prints the events of runs: answers as they are written, calls, ends
cycles      a past cycle as a tree, with bars for its times; an incident with its cycles
status      the status of an agent in rows, for `spar status` and `spar top`
"""

from spar.cli.main import main as main
