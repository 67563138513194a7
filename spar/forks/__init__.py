"""Forks of sessions, attached.

forks  copies a conversation into a session that goes on by itself
"""
