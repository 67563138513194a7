"""`spar top`: a terminal application that shows the agent live. Only this folder imports Textual, which is an extra.

Answers of a person are the same operations as those of the commands. The shown data come from the live events, and from
the status after an event that changes it.

facts     the known state of the agent, from events and answers; pure
words     formats an event as one line, and escapes texts; pure
rows      lists and texts of any length, of which only visible lines are drawn
panels    the lists: cycles, sessions, runs, waiting records, budgets, health, log
record    the screen of one record that waits for a person, and the answer to it
answer    the screen of an answer: one past cycle, costs, changes, rules
run       the screen of one run: its text as it is written, and its calls of tools
app       the application: its two pages, the screen of the keys, and the times of its requests
"""
