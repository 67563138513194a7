"""Planning by a language model: one request, its answer as it comes, and the loop around it.

Words of this folder. A *perception* is what a sensor noticed or a person said. A *run* is the work on one message of a
person; it takes one or more *cycles* of the agent, with one request each. A planner returns an *action* for a cycle: a
list of calls, an output, or both. The *actor* of the agent carries the calls out; outside of an agent an *executor*
does. The *host* is the object through which the agent gives a planner its clock, events, tools and records.
A *request* is all that a model is given to read. Its *context* is a list of *messages*: JSON objects with a `type`. Its
answer is a *solution*: a JSON object with `calls` of tools, an `output` (the answer for people or programs), and
perhaps `meta` (name and version of the work) and `advisors` (pieces of advice that the model writes in the roles which
the request names). A call *on the wire* is a JSON object with the tool's name under `_tool` and the call's id under
`_id`. A call, output or text may hold *references* (texts that begin with a dagger, †) to the results of other calls.
A *lazy* plan is carried out once all its calls are there, an *eager* one call by call while the answer is written.
A *session* is a line of work with its own conversation; its *transcript* has the entries of that. *Compaction* puts a
summary in the place of old entries. An *experience* is a remembered cycle. A *hook* is a function of the user that may
change or refuse what happens at a named point. Text from outside is *untrusted*. An action is untrusted if such text
may have influenced it; its calls may then need approval. The *room* of a model is the number of tokens that a request
may have. A *misfit* is an answer that cannot be used.

planner         a planner that makes one request for each cycle
state           settings and models of a planner, and all that outlasts one cycle
record          stores, publishes and counts the requests of a planner
loop            a loop of requests until there is an output, usable on its own; each step is a request and its calls
response        one request and its solution as it comes; whether it is used, or the model is asked again
streaming_json  parses the JSON of a solution from pieces
delegates       carries out calls that ask a model again, and bounds how deep that goes
compaction      summarizes a conversation that has grown too long

cycle/          one cycle of the planner: its request, and the answer that becomes calls and an action
provider/       one model of any provider, through the library pydantic-ai
"""
