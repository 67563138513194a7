"""Planning by a language model: one request, its answer as it comes, and the loop around it.

planner         a planner that makes one request for each cycle
state           settings of a planner, what it learnt, and the record of requests
turn            one cycle of the planner: request, retries with a smaller request, answer
loop            a loop of requests until there is an output, usable on its own
steps           the steps of that loop: what is asked, what is carried out, whether it ends
provider        one model of any provider through pydantic-ai
response        one request and its solution as it comes: calls, text, the rest
streaming_json  parses the JSON of a solution from pieces
native_tools    offers tools as native functions and reads the calls back
deltas          extracts the text for people from an answer in progress
delegates       carries out calls that ask a model, and bounds requests inside requests
compaction      summarizes a conversation that has grown too long
"""
