"""Handlers about perception.

incidents  incidents below `/v1`: list, show, close
learning   examples that the pipeline learns from, below `/v1`
"""
