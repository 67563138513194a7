"""The journal as the agent uses it: closing transactions, recovery, and work that people must settle.

cycle_log     writes the beginning and the end of each cycle, one transaction each
closing       computes the journal rows of a closed cycle; pure
recovery      finds and resumes the work that an earlier process left
suspects      tries work again that may have killed the process, one piece at a time
interrupted   decides about each cycle that was cut off: resume, repeat, or dead letter
retries       tries work again that failed, later
work          the accepted work in hand of this process, its open journal, the ends of its runs
in_doubt      keeps calls that may have had their effect until a person answers
dead_letters  keeps work that failed too often until a person answers
feedback      takes what people say of runs that have ended
state/        the state of an agent that outlives its process
"""
