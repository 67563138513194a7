"""`spar top`: a terminal application that shows the agent live. Only this folder imports Textual, which is an extra.

Answers of a person are the same operations as those of the commands. The shown data come from the live events, and from
the status after an event that changes it.

facts     the known state of the agent, from events and answers; pure
words     formats an event as one line, and escapes texts; pure
rows      a list of any length that draws only its visible rows
pages     a text of any length, folded to the width
panels    the lists of the first screen: sessions, runs, waiting records, budgets, health, log
record    the screen of one record that waits for a person, and the answer to it
run       the screen of one run: its text as it is written, and its calls of tools
keys      the screen of keys
app       the application: its first screen, and the times of its requests
"""
