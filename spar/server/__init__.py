"""The HTTP servers of a running service: the control API on a Unix socket; probes, metrics and the same API on a port.

A separate thread serves both, so that no module of the agent can block them.

    routes/        the handlers, a module for each subject
    api/           the routes of the control API as data: scope, parameters, bodies, answers; their OpenAPI document
    access/        the access control of the port: tokens, hosts, origins
    port           the application of the port: probes, metrics, hooks, and the control API behind tokens
    front          the thread that serves the sockets
    connections    limits the time and the number of connections
    bodies         limits the size of request bodies
    audit          writes an entry of the audit log for each request that changes something, and lists the entries
    peers          reads the identity of a peer on the Unix socket from the kernel
    sockets        names the Unix socket, and opens a short path to it
    gate           refuses requests while the agent starts and stops
    problems       renders errors as problem+json (RFC 9457)
    encoding       encodes any value of the agent as JSON
    answers        runs work in the agent's event loop and renders its answer
    event_streams  streams events as server-sent events, with heartbeats
"""
