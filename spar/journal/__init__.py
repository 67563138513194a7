"""The journal as the agent uses it: transactions of cycles, recovery after a restart, and work that a person must
decide.

The journal is a database table of facts: accepted work, the start and the end of each cycle, the ends of runs.

cycle_log     writes the start of each cycle, and its end with all results in one transaction
work          the accepted work of this process, its open journal, the ends of its runs
in_memory     the journal of an agent whose memory keeps none: which work was accepted before
recovery      the work that earlier processes and failed attempts left; makes its parts
restart       resumes the work that earlier processes left unfinished
failed_work   retries failed work after a back-off, work that may have killed the process one piece at a time; keeps
              calls in doubt, and work that failed too often, until a person decides
state/        the state of an agent that outlives its process
"""
