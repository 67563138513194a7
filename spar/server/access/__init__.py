"""Access control of the port: tokens, hosts and origins of requests.

token_door    admits requests to the API whose token has the needed scope, before their body is read
access        finds the token of a request, counts and logs refusals
guesses       limits the unknown tokens of a peer
browsers      recognizes requests of web pages of other origins, and names of other hosts
safe_headers  adds security headers to each answer
"""
