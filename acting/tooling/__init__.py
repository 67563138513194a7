"""Tools: reads a function, an object or a schema as a tool that can be called, and checks what it is called with.

registry      maps names to tools, registered one by one or offered by sources
bound_tool    one tool with its terms (effect, timeout, …) and its parameters, and the way to invoke it
parameters    describes and validates the parameters of a tool
signatures    reads parameters from a function's signature, descriptions from its docstring
tool_schema   reads a tool that is only a schema, with its `_` properties
tool_context  the context of one attempt, for tools that ask for it
limits        limits concurrency and rate, with a queue of callbacks
settings      judges the settings that a program gives to an executor
text          writes the schema of a built-in tool and checks its texts; pure
"""
