"""Access over the network: who may ask the port for what.

token_door    lets a request to the API in whose token has the right, before its body is read
access        finds the token of a request, counts and tells of those that are refused
browsers      refuses what web pages of other origins send, and hosts that this machine is not
safe_headers  adds the headers that keep an answer from being used otherwise
"""
