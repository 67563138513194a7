"""The planner that `[plan] use = "llm"` stands for: a model, others in its place when it cannot answer, and the rules.

    [plan]
    use = "llm"
    options = { model = "openai:gpt-5", instructions = "@instructions.md", context_tokens = 200000 }

    [plan]                                # a server of one's own, and another model behind it
    use = "llm"
    [plan.options]
    key_env = "LOCAL_KEY"
    model = [{ name = "qwen3", base_url = "http://127.0.0.1:8080/v1" }, "anthropic:claude-sonnet-4-5"]

What becomes of `[[rules]]` is said by `rules_are`:

    "fallback"   the model decides; the rules do when it cannot: it failed, or nothing is left of its budget (the action
                 then says `degraded`). The default, since a configuration that answers "the rest" by a rule, as the one
                 in the box does, would never come to ask a model if its rules went first.
    "first"      a rule that matches decides, everything else goes to the model. Rules that match everything are to be
                 taken out then. What rules decided is not degraded.
    "off"        there are none.

This module only makes the parts: what they do stands in `planning.llm.planner`, `.failover`, `.rules` and `.chain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from planning.bootstrap.files import FileTable, PromptFiles
from planning.bootstrap.session_prompts import SessionPrompts
from planning.bootstrap.skills import Skills, SkillsTable
from planning.bootstrap.snapshots import Snapshots
from planning.chain import Chain
from planning.llm.compaction import DEADLINE, Compaction
from planning.llm.planner import ModelPlanner
from planning.llm.provider import Mode
from planning.llm.state import PlanMode
from planning.model_tables import LEAST_ANSWER, LEAST_CONTEXT, ModelTable, ModelTables, Prices, Temperature
from planning.rules.planner import RulesPlanner
from spar.clock import SystemClock
from spar.errors import ConfigError
from spar.protocols import Context, Home, Host
from spar.records.run_options import Thinking
from spar.types import Perception

RulesAre = Literal["fallback", "first", "off"]
#: Bytes of a file with instructions; more than that is a mistake, and would be paid for with every request.
_LARGEST: Final = 200_000


class Assistant(Chain):
    """PLAN by a model, with the rules in its place or before it.

    Args:
        model: one model (`provider:model`, or a table), or several in the order in which they are asked.
        base_url: a server that speaks OpenAI's chat completions, for models that do not name their own.
        key_env: the environment variable with the key; left out: the one that the provider usually reads.
        api_key: the key itself, where the configuration file is a secret; or `{ file = "…" }`, `{ env = "…" }`,
            `{ credential = "…" }`.
        mode: `native` offers tools as functions, `structured` asks for JSON, `auto` finds out.
        first_byte, idle: seconds until an answer begins, and between two pieces of it.
        prices: of a million tokens: `input`, `output`, perhaps `cached`; left out: those that are known.
        instructions: a text, or `@` and a file beside the configuration.
        files: what the model is told with them: files beside the configuration or in the workspace, each a name or a
            table with `path`, `trust` and `required`.
        skills: a folder of skills there, or a table with `path` and `trust`.
        output: the schema that answers have to fit, for runs that bring none of their own.
        context_tokens: how much the model reads; left out: what it refuses is made shorter.
        max_tokens: how much one answer may have, its thoughts not counted.
        thinking: how much the model thinks before it answers; left out: as its provider has it.
        temperature: how freely it chooses its words; left out: as its provider has it.
        settings: further settings of its provider, by the names that pydantic-ai gives them.
        allowed_models: those that a message may choose: names of `model`, and others; left out: those of `model`.
        recall: experiences that a request is given.
        pursue: whether what was noticed becomes a run of its own; else it gets one request.
        compaction_model, compaction_timeout: the model that sums up a conversation that grew too long, and its seconds.
        rules_are: "fallback" uses the rules when no model can answer, "first" before a model is asked, "off" never.
        plan_mode: "eager" or "lazy" keeps a run's calls as a plan from request to request (`planning.llm.planner`).
        advisors: the advisors of each request: tables with `id`, `role`, `schema` and `on`.
        delegates: by path, what calls may be delegated to: tables with `context` and `schema`.

    Raises: ConfigError, with the `path` of the option, for what cannot be used.
    """

    def __init__(
        self,
        model: str | ModelTable | list[str | ModelTable],
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        api_key: str | None = None,
        mode: Mode = "auto",
        first_byte: float = 120.0,
        idle: float = 60.0,
        prices: Prices | None = None,
        instructions: str = "",
        files: Sequence[str | FileTable] = (),
        skills: str | SkillsTable | None = None,
        output: dict[str, Any] | None = None,
        context_tokens: int | None = None,
        max_tokens: int | None = None,
        thinking: Thinking | None = None,
        temperature: Temperature | None = None,
        settings: dict[str, Any] | None = None,
        allowed_models: list[str | ModelTable] | None = None,
        recall: int = 5,
        pursue: bool = True,
        compaction_model: str | ModelTable | None = None,
        compaction_timeout: float = DEADLINE,
        rules_are: RulesAre = "fallback",
        plan_mode: PlanMode = "",
        advisors: Sequence[dict[str, Any]] = (),
        delegates: dict[str, dict[str, Any]] | None = None,
        rules: Sequence[dict[str, Any]] = (),
        tools: Sequence[str] | None = None,
        home: Home | None = None,
    ) -> None:
        _check(context_tokens=context_tokens, max_tokens=max_tokens, recall=recall, timeout=compaction_timeout)
        shared = {"base_url": base_url, "key_env": key_env, "api_key": api_key, "mode": mode, "prices": prices,
                  "first_byte": first_byte, "idle": idle, "context_tokens": context_tokens, "max_tokens": max_tokens,
                  "thinking": thinking, "temperature": temperature, "settings": settings}  # fmt: skip
        if find_spec("pydantic_ai") is None:  # said at the start, and not by the first run that fails
            sentence = "a model needs a library that is not installed; install it with: pip install 'spar-agent[llm]'"
            raise ConfigError(sentence, path=("model",))
        self._tables = ModelTables(model, compaction_model, allowed_models, shared)
        main, compaction = self._tables.made(SystemClock(), None)
        self._tables.check()
        self._planner = ModelPlanner(
            main,
            instructions=_prompts(_text(instructions, home), files, skills, home),
            output=output,
            recall=recall,
            pursue=pursue,
            compaction_model=compaction,
            definitions=delegates,
            plan_mode=plan_mode,
            advisors=advisors,
        )
        self._planner.compaction = Compaction(self._planner.ask, deadline=compaction_timeout)
        asked: list[Any] = [self._planner]
        if rules_are != "off":
            asked.insert(0 if rules_are == "first" else 1, RulesPlanner(rules, tools=tools))
        super().__init__(asked, main=asked.index(self._planner))

    def attach(self, host: Host) -> None:
        """Go by the agent's clock and budgets from now on."""
        self._planner.use(*self._tables.made(host.clock, host.budgets))
        super().attach(host)

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return what would stand in the model's next request (`ModelPlanner.prompt`)."""
        return await self._planner.prompt(perceptions, context, with_text=with_text)

    def warnings(self) -> list[str]:
        """Return which models lack the key that they are to use, and what is wrong with files and skills."""
        return self._planner.prompts.warnings() + [
            f"the environment variable {key_env!r}, which is to hold the key of model {name!r}, is not set: set it "
            "where the service is started, or this model cannot be asked"
            for name, key_env in self._tables.missing_keys().items()
        ]


#: The name under which it is registered.
assistant = Assistant


def _check(*, context_tokens: int | None, max_tokens: int | None, recall: int, timeout: float) -> None:
    """Raises: ConfigError for the first figure that makes no sense."""
    least = {"context_tokens": (context_tokens, LEAST_CONTEXT), "max_tokens": (max_tokens, LEAST_ANSWER),
             "recall": (recall, 0)}  # fmt: skip
    for name, (found, lowest) in least.items():
        if found is not None and found < lowest:
            raise ConfigError(f"{name} is {found!r}, expected {lowest} or more", path=(name,))
    if recall > 50:
        raise ConfigError(
            f"recall is {recall!r}, expected 50 or less: every request would carry them", path=("recall",)
        )
    if not timeout > 0:
        raise ConfigError(f"compaction_timeout is {timeout!r}, expected more than 0", path=("compaction_timeout",))


def _prompts(
    instructions: str, files: Sequence[str | FileTable], skills: str | SkillsTable | None, home: Home | None
) -> SessionPrompts:
    """The standing prompts, with what is wrong with them known before the first request. Raises: ConfigError."""
    told = PromptFiles(files, home) if files else None
    snapshots = Snapshots(Skills(skills, home)) if skills is not None else None
    if told is not None:
        told.look_now()
    if snapshots is not None:
        snapshots.skills.look()
    return SessionPrompts(instructions, told, snapshots)


def _text(instructions: str, home: Home | None) -> str:
    """The instructions, read from a file if they name one."""
    if not instructions.startswith("@"):
        return instructions
    path = Path(home.config if home is not None else ".", instructions[1:])
    try:
        found = path.read_bytes()
        if len(found) > _LARGEST:
            raise ConfigError(
                f"instructions {instructions!r} have {len(found)} bytes, expected at most {_LARGEST}: each request "
                "would carry them",
                path=("instructions",),
            )
        return found.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ConfigError(
            f"instructions {instructions!r} cannot be read from {str(path)!r}: {reason}; write the text itself, or "
            "the name of a file beside the configuration",
            path=("instructions",),
        ) from error
