"""PLAN: perceptions become one action.

`RulesPlanner` decides by declarative rules, `Chain` asks several planners in turn. Each is usable on its own:
`await RulesPlanner(rules).plan(perceptions)`. For what asks a model: `compose` makes a `Request` (`compose_schema` says
what may be answered, `render` what is read), `Solving` takes the solution as it comes, `Requests` goes on until there
is an output: `await Requests(model, tools=[…]).run(context, output=schema)`.
"""

from planning.chain import Chain
from planning.compose import compose_schema
from planning.context import compose
from planning.ports import Model, Request, Told, Turn, Usage
from planning.rendering import render
from planning.requests import Requests
from planning.rules import RulesPlanner
from planning.solution import Solving
from planning.steps import Answered

__all__ = [
    "Answered",
    "Chain",
    "Model",
    "Request",
    "Requests",
    "RulesPlanner",
    "Solving",
    "Told",
    "Turn",
    "Usage",
    "compose",
    "compose_schema",
    "render",
]
