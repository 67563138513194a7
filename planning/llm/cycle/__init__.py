"""One cycle of a planner by a model.

turn         sends the request; its answer becomes calls and an action, and is published while it comes
request      gathers what the request is made of, makes a smaller one where it was too long, lists its parts
composition  composes the request of these values
"""
