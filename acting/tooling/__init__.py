"""Tools: reads a function, an object or a schema as a tool that can be called, and checks what it is called with.

registry      maps names to tools, registered one by one or offered by sources
bound_tool    one tool with its terms (effect, timeout, …) and its parameters, and the way to invoke it
parameters    describes and validates the parameters of a tool, and the settings of an executor
signatures    reads parameters from a function's signature, descriptions from its docstring
tool_schema   reads a tool that is only a schema, with its `_` properties; writes the schema of a built-in tool
context       the context of one attempt, for tools that ask for it; the scope of a batch; faults of calls
limits        limits concurrency and rate, with a queue of callbacks
"""
