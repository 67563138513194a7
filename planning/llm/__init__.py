"""Planning by a language model: one request, its answer as it comes, and the loop around it.

planner         a planner that makes one request for each cycle
state           settings of a planner, and all that outlasts one cycle
record          the requests of a planner: kept, published, counted
turn            one cycle of the planner: what the answer to its request decides
cycle_request   the request of a cycle, and a smaller one where it was too long
loop            a loop of requests until there is an output, usable on its own
steps           the steps of that loop: what is asked, what is carried out, whether it ends
response        one request and its solution as it comes: calls, text, the rest
streaming_json  parses the JSON of a solution from pieces
deltas          extracts the text for people from an answer in progress
delegates       carries out calls that ask a model, and bounds requests inside requests
compaction      summarizes a conversation that has grown too long

provider/       one model of any provider through pydantic-ai
"""
