"""REFLECT: what a result teaches. `Reflect` puts outcome, causes, ability and lessons together.

`reflection.model.ModelReflect` also asks a model.
"""

from reflection.reflect import Reflect

__all__ = ["Reflect"]
