"""The control API as data: each route with its scope, its parameters, its body and its answer.

The signatures of the handlers define the parameters. The reading of requests, the reference page and the OpenAPI
document all use them.

    query     reads the query of a request into typed values
    route     defines a route: path, handler, scope
    openapi   builds the OpenAPI document of all routes
"""
