"""Server of the Model Context Protocol: operations of a running service as tools, for other programs and their models.

It is a client of the service like any other: over the control socket, or over the port with a token. The service checks
scopes, limits and inputs, and writes the audit log.

    tools      the tools, made from the table of operations, and how a call becomes an operation
    serving    the protocol, by the SDK, over standard streams
    port       the same over streamable HTTP, for clients with a token
"""
