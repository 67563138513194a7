"""`spar top`: a terminal application that shows the agent live. Only this folder imports Textual, which is an extra.

Answers of a person are the same operations as those of the commands. The shown data come from the live events, and from
the status after an event that changes it.

facts     the known state of the agent, from events and answers; pure
rows      a list of any length, of which only visible lines are drawn
panels    the table of the lists: cycles, sessions, runs, waiting records, budgets, health, log
screens   the screens of an answer, of one run, and of one record that waits for a person, with the answer to it
command   the command: checks the terminal and the extra
app       the application: its two pages, the keys, and the times of its requests
"""

from typing import Final

from spar.cli.main import Place

COMMAND: Final = Place("spar.top.command:top", "Show live what it does, and answer what it asks.", group="Watch")
