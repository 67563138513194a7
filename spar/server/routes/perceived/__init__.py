"""Handlers about perception.

incidents  incidents: list, show, close
learning   examples that the sense pipeline learns from: list, teach, forget, try
"""
