"""REFLECT: what a result teaches. `Reflect` puts outcome, causes, ability and lessons together.

reflect      the standard reflector, without a model
model        the reflector that also asks a model
outcome      how an action went: score and success
causes       why a call failed, and what may help
tried        the calls as an experience keeps them
lessons      the experience of one action, and the task of each call
ability      how well a tool does at a kind of task
environment  what environments say of an episode
threads      the calls that a later word may be about, step by step
credit       what a later word says of each of these calls
question     the question to a model
advice       the answer of a model, as far as it can be used
"""

from reflection.reflect import Reflect

__all__ = ["Reflect"]
