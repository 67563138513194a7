"""REFLECT: learns from the result of a cycle. `Reflect` joins outcome, causes, abilities and lessons.

reflect      the standard reflector, without a model
model        the reflector that also asks a model
outcome      the score and the success of an action
causes       causes of failed calls, and remedies
tried        the calls as an experience stores them
lessons      the experience of one action, and the task of each call
ability      estimates of how well a tool does at a kind of task
environment  the rewards that environments report for an episode
threads      the calls that later feedback may be about, step by step
credit       the credit that later feedback gives to each of these calls
question     the question to a model
advice       the validated answer of a model
"""

from reflection.reflect import Reflect

__all__ = ["Reflect"]
