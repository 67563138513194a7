"""`spar chat`: a conversation with the running service, on the screen of a terminal or in lines.

command       the command: chooses the screen or lines
conversation  what both have in common: messages and their runs, the commands of a slash, approvals
screen        the screen: the input at the bottom, and its keys; only this module imports prompt_toolkit
view          what the screen shows of runs: the lines that stand for good, and those that still change
markdown      draws answers, block by block while they are written (rich, markdown-it)
lines         lines on a pipe, a simple terminal, or with --plain
"""

from typing import Final

from spar.cli.main import Place

COMMAND: Final = Place("spar.chat.command:chat", "Talk with it in a terminal or a pipe.", group="Talk")
