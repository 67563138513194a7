"""Writing of the journal: turns each write into rows, and hands the rows to the writer's thread.

facts     makes the rows of facts, items and open cycles
calls     writes that calls were planned, started, ended, detached
cycles    writes beginnings and ends of cycles, and all that belongs to an end
work      writes items, ends of runs, dead letters and calls in doubt
state     writes small values and rows, totals of counts, and uses of budgets
handover  gathers rows for up to 2 ms in a batch, and hands it to the writer, which writes it in one transaction
flush     the result of one flush to the disk, for all tasks that wait for it
"""
