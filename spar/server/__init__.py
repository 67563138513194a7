"""The HTTP servers of a running service: a control API on a Unix socket; it, probes and metrics on a port.

Both are served by a thread of their own, so that nothing a module does can block them.

    api/           the routes of the control API as data: scope, parameters, bodies, answers; their OpenAPI document
    access/        who may ask the port for what: tokens, hosts, origins
    port           the application of the port: probes, metrics, hooks, and the control API behind tokens
    front          the thread that serves the sockets
    connections    limits the time and the number of connections
    bodies         limits the size of request bodies
    audit          writes an entry of the audit log for each request that changes something, and lists them
    peers          reads the identity of a peer on the Unix socket from the kernel
    sockets        names the Unix socket, also when its path is long
    gate           admits requests while the agent starts and stops
    problems       renders errors as problem+json (RFC 9457)
    encoding       renders whatever the agent returns as JSON
    answers        calls the agent in its event loop and renders its answers
    event_streams  streams events as they come, with signs of life
"""
