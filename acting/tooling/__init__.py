"""Tools: from a function or a schema to a checked call.

registry      maps names to tools, given by hand or by sources
bound_tool    one tool with its terms and parameters, and the way to invoke it
parameters    describes and validates the parameters of a tool
signatures    reads parameters from a function's signature
docstrings    reads descriptions from Google, numpy and Sphinx docstrings
tool_schema   reads a tool that is only a schema, with its `_` properties
tool_context  the context of one attempt, for tools that ask for it
limits        limits concurrency and rate, with a queue of callbacks
text          writes schemas and checks text; pure
"""
