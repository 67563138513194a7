"""REFLECT: what a result teaches. `Reflect` puts outcome, causes, ability and lessons together."""

from reflection.reflect import Reflect

__all__ = ["Reflect"]
