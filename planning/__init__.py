"""PLAN: turns perceptions into one action.

`RulesPlanner` decides by declarative rules; `Chain` asks several planners in turn. Each works on its own:
`await RulesPlanner(rules).plan(perceptions)`. For models: `compose` returns a `Request` (`compose_schema` returns the
schema of its answer, `render` its text); `ModelResponse` reads the solution while it is streamed; `Requests` repeats
requests until there is an output: `await Requests(model, tools=[…]).run(context, output=schema)`.

    chain         asks several planners in turn; the first decision counts
    assistant     the planner `llm` of the configuration: models, and rules in their place
    model_tables  creates and checks the models that the configuration names
    ports         the port between planners and models
    rule_counts   counts what happened to each rule, in rows of the memory
    dataflow      reads and writes between the calls of a plan; pure
    output_check  resolves the references of a final output and validates it
    strict_json   parses JSON strictly: no duplicate keys, no NaN, no number out of range

    rules/        planning by declarative rules
    cases/        case-based reasoning: results of remembered calls as evidence for the next call
    llm/          planning by a language model
    bootstrap/    the standing part of a prompt: instructions, files, skills
    prompt/       composes one request from a context; pure. `prompt/plans/`: plans and their versions
    resilience/   timeouts, provider errors, breakers, failover
"""

from planning.chain import Chain
from planning.llm.loop import Answered, Requests
from planning.llm.response import ModelResponse
from planning.ports import Model, Request, TextDelta, Turn, Usage
from planning.prompt.render import render
from planning.prompt.request import compose
from planning.prompt.schema import compose_schema
from planning.rules.planner import RulesPlanner

#: Older names of two classes, which programs still use.
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
