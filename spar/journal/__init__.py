"""The journal as the agent uses it: closing transactions, recovery, and work that people must settle.

cycle_log          writes the beginning and the end of each cycle, one transaction each
closing            computes the journal rows of a closed cycle; pure
recovery           finds and resumes the work that an earlier process left
interrupted        decides about each cycle that was cut off: resume, repeat, or dead letter
work               the accepted work in hand of this process, and its open journal
run_ends           writes the ends of runs that no cycle writes
in_doubt           keeps calls that may have had their effect until a person answers
dead_letters       keeps work that failed too often until a person answers
feedback           takes what people say of runs that have ended
background_writer  stores experiences and cycles without a journal, beside the loop
agent_state        loads and saves experiences, statistics, abilities and event numbers of an agent
"""
