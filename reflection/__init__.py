"""REFLECT: learns from the result of a cycle. `Reflect` joins causes, abilities and lessons.

reflect      the standard reflector, without a model
model        the reflector that also asks a model
causes       causes of failed calls, and remedies
lessons      the outcome of an action, its calls, its experience, the task of each call, and the trials of tools
credit       the calls that later feedback may be about, step by step, and the credit that people and environments give
question     the question to a model
advice       the validated answer of a model
"""

from reflection.reflect import Reflect

__all__ = ["Reflect"]
