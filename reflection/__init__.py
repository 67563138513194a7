"""REFLECT: learns from the result of a cycle. `Reflect` joins causes, abilities and lessons.

reflect      the standard reflector, without a model
model        the reflector that also asks a model
causes       causes of failed calls, and remedies
lessons      the outcome of an action, its calls, its experience, and the task of each call
ability      estimates of how well a tool does at a kind of task
environment  the rewards that environments report for an episode
threads      the calls that later feedback may be about, step by step
credit       the credit that later feedback gives to each of these calls
question     the question to a model
advice       the validated answer of a model
"""

from reflection.reflect import Reflect

__all__ = ["Reflect"]
