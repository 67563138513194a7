"""Commands of people to their session, attached.

commands  recognizes them in messages, carries them out and answers
"""
