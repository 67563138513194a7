"""Writing of the journal: what is told becomes rows, and those are handed to the writer.

calls     the calls of cycles: planned, started, ended, detached
cycles    the cycles: begun, gone on with, ended, with all that becomes durable with their ends
work      accepted work, ended runs, dead letters and calls in doubt
state     small values and rows, the sums of counts and budgets
handover  gathers what is told within a moment, and hands it to the writer
facts     makes the rows of facts and of what they are about
batch     the rows of one moment as one unit of work for the writer
flush     one flush for all who wait
"""
