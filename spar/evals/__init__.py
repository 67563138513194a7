"""Evaluation: cases that a model plays through the whole agent, with tools that only answer, and a judgement of each.

A case can reach nothing: its tools are replaced by those that it describes, its store is a folder that is deleted.

conditions  conditions on texts and parameters
cases      the form of a case: messages, tools that answer, what must hold
recorded   makes a case of a run or a cycle that happened
reading    reads files of cases, and names file and line of what is wrong in one
playing    plays a case against a configuration, with tools that answer; gives up when the model is away
command    the command `spar eval`
summary    judges trials, sums up those of a configuration, and the difference of two, with intervals

`shipped/` has the cases that are played when no file is named, a file for each subject.
"""

from typing import Final

from spar.cli.main import Place

COMMAND: Final = Place(
    "spar.evals.command:evaluation", "Play cases against the model; make one of what happened.", group="Set up"
)
