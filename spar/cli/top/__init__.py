"""`spar top`: what the agent does, live, in a terminal. Textual is known here only, and it is an extra.

Whatever a person does here goes over the same routes as the commands; what is shown comes from `GET /v1/events`, and
from `GET /v1/status` where an event says that it has changed.

facts     keeps what is known of the agent, from events and answers; pure
words     says an event in a line; makes any text harmless; pure
link      asks the service in threads, hears its events, and comes back when it was away
rows      draws a list of any length, of which only what is visible is drawn
pages     draws a text of any length, folded to the width
panels    the lists of the first screen: sessions, runs, what waits for people, budgets, health, log
record    the screen of one thing that waits for people, and the answer to it
run       the screen of one run: its text as it is written, and what its tools do
keys      the screen of keys
app       the application: its first screen, its clock, who asks when
"""
