"""PLAN: perceptions become one action.

`RulesPlanner` decides by declarative rules, `Chain` asks several planners in turn. Each is usable on its own:
`await RulesPlanner(rules).plan(perceptions)`. For planners that ask a model: `compose_schema` says what it may answer,
`render` what it reads.
"""

from planning.chain import Chain
from planning.compose import compose_schema
from planning.rendering import render
from planning.rules import RulesPlanner

__all__ = ["Chain", "RulesPlanner", "compose_schema", "render"]
