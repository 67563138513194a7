"""Prompts: the context of a cycle becomes one request to a model; pure.

Words of this folder. A *context* is a list of *messages on the wire*: JSON objects with a `type` (text, data, tool,
advisor, plan, meta) and for data a `kind` (state, result, error, experience, …). A *solution* is a model's answer: a
JSON object with `calls`, an `output`, and perhaps `meta` and `advisors`. A *reference* is a text that begins with a
dagger (†state.page) and stands for a value. An *instance* is a name under which calls keep data of their own.

request       composes a request from the messages of a context
prompts       the fixed instructions of every request
schema        composes the schema of a solution
schema_merge  merges JSON schemas and widens them for references
advisors      reads advisors, and makes the schema of their advice
tool_specs    reads tools in any form: name, schema, and how their calls are carried out
observations  turns perceptions, results and experiences into messages
call_results  shows calls beside their results
history       turns the transcript of a session into turns of a conversation, which are only added to
render        renders a context as text
shorten       renders a value as one bounded line of JSON
token_budget  estimates tokens and makes a request fit

plans/        plans that last from request to request, circles in them, versions of the work
"""
