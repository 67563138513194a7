"""The control API: how a request becomes an operation, and an operation a description.

dispatch   answers a request: scope, state of the agent, input, audit, run, answer
input      reads the input of an operation from path, query and body
openapi    builds the OpenAPI document of all operations
"""
