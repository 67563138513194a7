"""`spar top`: a terminal application that shows the agent live. Only this folder imports Textual, which is an extra.

Answers of a person use the same routes as the commands. The shown data come from `GET /v1/events`, and from
`GET /v1/status` after an event that changes the status.

facts     the known state of the agent, from events and answers; pure
words     formats an event as one line, and escapes texts; pure
link      sends requests in threads, reads the events, and reconnects when the service was away
rows      a list of any length that draws only its visible rows
pages     a text of any length, folded to the width
panels    the lists of the first screen: sessions, runs, waiting records, budgets, health, log
record    the screen of one record that waits for a person, and the answer to it
run       the screen of one run: its text as it is written, and its calls of tools
keys      the screen of keys
app       the application: its first screen, and the times of its requests
"""
