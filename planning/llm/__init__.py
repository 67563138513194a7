"""Planning by a language model: one request, its answer as it comes, and the loop around it.

Words of this folder. A *request* is all that a model is given to read. Its answer is a *solution*: a JSON object with
`calls` of tools, an `output` (the answer for people or programs), and perhaps `meta` and `advisors`. A call *on the
wire* is a JSON object with the tool's name under `_tool` and its id under `_id`. A *run* is the work on one message of
a person; it takes one or more *cycles* of the agent, with one request each. A call, output or text may hold
*references* (texts that begin with a dagger, †) to what other calls bring.

planner         a planner that makes one request for each cycle
state           settings of a planner, and all that outlasts one cycle
record          the requests of a planner: kept, published, counted
turn            one cycle of the planner: its answer becomes calls and an action
cycle_request   the request of a cycle, and a smaller one where it was too long
loop            a loop of requests until there is an output, usable on its own
steps           one run of that loop: each step is a request and its calls
response        one request and its solution as it comes: calls, text, the rest
streaming_json  parses the JSON of a solution from pieces
deltas          extracts the text for people from an answer in progress
delegates       carries out calls that ask a model again, and bounds how deep that goes
compaction      summarizes a conversation that has grown too long

provider/       one model of any provider through pydantic-ai
"""
