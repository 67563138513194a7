"""The journal: the record of an agent's work in the database, from which the next process continues.

journal     turns each fact into rows; implements the protocols of the journal that the agent uses
handover    makes the rows of facts, items and open cycles; gathers rows for up to 2 ms in a batch, and hands it to the
            writer, which writes it in one transaction
queries     reads items, open cycles and calls in doubt, after the rows that wait have been handed to the writer
statements  the SQL of items, open cycles, calls in doubt, small values and used amounts of budgets
in_flight   keeps the names of the current work in a small file, which outlives the process
orphans     deals with open cycles of agents that no longer exist

Words: A *cycle* is one pass of an agent through sense, plan, act and reflect. A cycle is *open* from its beginning to
its end; a restarted process continues the open cycles. A *call* runs one tool; an *action* is the list of calls that a
plan decided on, and the *actor* carries it out. A *perception* is what a sensor noticed or a person said. An *item* is
accepted work: a perception, or the message of a *run* (the work on one message until its answer). A *session* is one
line of work with its own conversation, and its *transcript* has the entries of that. A *reset* ends the conversation of
a session and begins a new one.
A *fact* is a row that is only ever added: what happened to a cycle, a call or an item, and when. Facts form a chain:
each has a hash of itself and the one before. All other rows may change; their bodies have a checksum (`sealed`).
The *cycle log* has a row with the record of each ended cycle. The *counts* of an agent are the numbers of its outcomes
and errors and its durations. A *small row* is a value under an owner and a key, a *cursor* the place at which a sensor
continues. A *budget* limits calls, requests, tokens or money in a period. An *experience* is a remembered cycle;
*credits* say which experiences helped or harmed, *feedback* how earlier cycles and runs turned out. The *audit log*
says who changed what.
The *effect* of a tool says whether a call may be repeated: `read`, `idempotent` or `once` (never repeated by itself). A
call is *in doubt* if nobody knows whether it had its effect, which must not be repeated; a person decides. A *detached*
call continues without its cycle. A *dead letter* is work that was put aside for people to look at.
The *writer* is the only thread that writes to the database; a *batch* is a unit of rows that it writes in one
transaction. Writes are *safe* when they are as durable as the setting `durability` promises; a *flush* makes them so.
The *epoch* is the number of times the file was opened for writing; a *fence* is a number that only grows and marks the
newest caller of a tool.
A *crashpoint* is a named place in the code at which a test ends the process; otherwise it does nothing. *Recovery* is
the work of a process with the open cycles of the process before.
"""
