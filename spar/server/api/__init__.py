"""The control API: how a request becomes an operation, and an operation a description.

dispatch   answers a request: scope, state of the agent, input from path, query and body, audit, run, answer
repeated   carries out a request with an idempotency key once
openapi    builds the OpenAPI document of all operations
"""
