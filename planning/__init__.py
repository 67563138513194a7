"""PLAN: perceptions become one action.

`RulesPlanner` decides by declarative rules, `Chain` asks several planners in turn. Each is usable on its own:
`await RulesPlanner(rules).plan(perceptions)`. For models: `compose` makes a `Request` (`compose_schema` makes the
schema of its answer, `render` its text), `ModelResponse` takes the solution as it comes, `Requests` goes on until there
is an output: `await Requests(model, tools=[…]).run(context, output=schema)`.

    chain         asks several planners in turn: the first decision counts
    assistant     the planner `llm` of the configuration: models, then rules
    model_tables  the models that the configuration names, made and checked
    ports         the port between planners and models
    dataflow      reads and writes between the calls of a plan; pure
    output_check  resolves the references of a final output and validates it
    strict_json   parses JSON strictly: no double keys, no NaN, no number out of range

    rules/        planning by declarative rules
    cases/        remembered calls: how they went in a situation, and what follows from that for the next one
    llm/          planning by a language model
    bootstrap/    what a model is told before anything of a request: instructions, files, skills
    prompt/       from a context to one request; pure. `prompt/plans/`: plans and their versions
    resilience/   timeouts, provider errors, breakers, failover
"""

from planning.chain import Chain
from planning.llm.loop import Requests
from planning.llm.response import ModelResponse
from planning.llm.steps import Answered
from planning.ports import Model, Request, TextDelta, Turn, Usage
from planning.prompt.render import render
from planning.prompt.request import compose
from planning.prompt.schema import compose_schema
from planning.rules.planner import RulesPlanner

#: Their names in the first build, which programs use.
Solving = ModelResponse
Told = TextDelta

__all__ = [
    "Answered",
    "Chain",
    "Model",
    "ModelResponse",
    "Request",
    "Requests",
    "RulesPlanner",
    "Solving",
    "TextDelta",
    "Told",
    "Turn",
    "Usage",
    "compose",
    "compose_schema",
    "render",
]
