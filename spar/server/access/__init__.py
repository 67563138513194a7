"""Access control of the port: tokens, hosts and origins of requests.

access    admits requests to the API with a valid token, before their body is read; counts and logs refusals; limits the
          unknown tokens of a peer
sessions  the sessions of browsers that signed in to the console; recognizes requests of web pages of other origins, and
          names of other hosts
"""
