"""From the context of a cycle to one request; pure.

request       composes a request from the messages of a context
prompts       the fixed instructions of every request
schema        composes the schema of a solution
schema_merge  merges JSON schemas and widens them for references
advisors      describes the advice that a solution has to give
tool_specs    reads tools in any shape: name, schema, executor
observations  renders a planner's knowledge as wire messages
call_results  renders calls beside their results
history       renders the earlier turns of a session
render        renders a context as text
shorten       renders a value as one bounded line of JSON
token_budget  estimates tokens and makes a request fit

plans/        plans that are kept, their circles and versions
"""
