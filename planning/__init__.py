"""PLAN: perceptions become one action.

`RulesPlanner` decides by declarative rules, `Chain` asks several planners in turn. Each is usable on its own:
`await RulesPlanner(rules).plan(perceptions)`.
"""

from planning.chain import Chain
from planning.rules import RulesPlanner

__all__ = ["Chain", "RulesPlanner"]
