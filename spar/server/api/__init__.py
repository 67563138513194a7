"""The control API as data: each route with its scope, its parameters, its body and its answer.

The handlers' own signatures say what they take, so that a request is read, a page written and a document made from one
place.

    query     reads the query of a request into typed values
    route     states a route: path, handler, scope
    openapi   writes the OpenAPI document of all routes
"""
