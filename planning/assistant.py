"""The planner of `[plan] use = "llm"`: a model, further models for its failures, and the rules.

    [plan]
    use = "llm"
    options = { model = "openai:gpt-5", instructions = "@instructions.md", context_tokens = 200000 }

    [plan]                                # your own server, and another model for its failures
    use = "llm"
    [plan.options]
    key_env = "LOCAL_KEY"
    model = [{ name = "qwen3", base_url = "http://127.0.0.1:8080/v1" }, "anthropic:claude-sonnet-4-5"]

The option `rules_are` says how `[[rules]]` are used:

    "fallback"   the model decides. The rules decide when it cannot: it failed, or its budget is used up; the action
                 then says `degraded`. This is the default: the supplied configuration has a rule for everything that
                 no other rule matches, so no model would be asked if the rules went first.
    "first"      a rule that matches decides, everything else goes to the model. Remove rules that match everything. A
                 decision of the rules is not degraded.
    "off"        the rules are not used.

This module only creates the parts: see `planning.llm.planner`, `planning.resilience.failover`, `planning.rules` and
`planning.chain`.
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
from planning.llm.provider import Mode, ModelOptions
from planning.llm.state import PlanMode
from planning.model_tables import LEAST_ANSWER, LEAST_CONTEXT, ModelTable, ModelTables, Prices, Temperature
from planning.rules.planner import RulesPlanner
from spar.clock import SystemClock
from spar.errors import ConfigError
from spar.protocols import Context, Home, Host
from spar.records.run_options import Thinking
from spar.types import Perception

RulesAre = Literal["fallback", "first", "off"]
#: Largest size of a file with instructions, in bytes. A larger one is a mistake and would be paid for in every request.
_LARGEST: Final = 200_000


class Assistant(Chain):
    """PLAN by a model, with the rules after it or before it.

    Args:
        model: one model (`provider:model` or a table), or several in the order in which they are asked.
        base_url: a server with the API of OpenAI's chat completions, for models without a `base_url` of their own.
        key_env: the environment variable with the key; default: the variable that the provider's library reads.
        api_key: the key itself, for a configuration file that is secret; or `{ file = "…" }`, `{ env = "…" }`,
            `{ credential = "…" }`.
        mode: `native` offers tools as functions, `structured` asks for JSON, `auto` chooses by the model.
        first_byte, idle: seconds until an answer begins, and between two pieces of it.
        prices: of a million tokens: `input`, `output`, optionally `cached`; default: the prices that are known.
        cache: whether requests are marked for the provider's cache; default: by providers that take it, not with a
            `base_url`.
        instructions: a text, or `@` and the name of a file beside the configuration.
        files: files for the prompt, beside the configuration or in the workspace: each a name or a table with `path`,
            `trust` and `required`.
        skills: a folder of skills there, or a table with `path` and `trust`.
        output: the schema of answers, for runs without a schema of their own.
        context_tokens: tokens that the model can read; default: a request that the model refuses is shortened.
        max_tokens: tokens of one answer, without its thoughts.
        thinking: how much the model thinks before it answers; default: the provider's.
        temperature: randomness of its words, 0 to 2; default: the provider's.
        settings: further settings of its provider, by their names in pydantic-ai.
        allowed_models: models that a message may choose: names of `model`, and others; default: those of `model`.
        recall: number of experiences in a request, at most 50.
        pursue: whether noticed perceptions start a run; if not, they get one request.
        compaction_model, compaction_timeout: the model that sums up a conversation that is too long, and its time limit
            in seconds.
        rules_are: "fallback" uses the rules when no model can answer, "first" before a model is asked, "off" never.
        plan_mode: "eager" or "lazy" keeps a run's calls as a plan from request to request (`planning.llm.planner`).
        references: whether calls of one answer may refer to one another; if not, tools have no fields for that.
        advisors: the advisors of each request: tables with `id`, `role`, `schema` and `on`.
        delegates: by path, the delegates that a call may name: tables with `context` and `schema`.
        rules, tools: the rules of the configuration, and the names of the known tools.
        home: the folders of the configuration and the workspace.

    Raises: ConfigError, with the `path` of the option, for an option that cannot be used.
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
        cache: bool | None = None,
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
        references: bool = True,
        advisors: Sequence[dict[str, Any]] = (),
        delegates: dict[str, dict[str, Any]] | None = None,
        rules: Sequence[dict[str, Any]] = (),
        tools: Sequence[str] | None = None,
        home: Home | None = None,
    ) -> None:
        shared = {option: value for option, value in locals().items() if option in ModelOptions.__struct_fields__}
        _check_figures(context_tokens=context_tokens, max_tokens=max_tokens, recall=recall, timeout=compaction_timeout)
        if find_spec("pydantic_ai") is None:  # fail at the start, not in the first run
            sentence = "a model needs a library that is not installed; install it with: pip install 'spar-agent[llm]'"
            raise ConfigError(sentence, path=("model",))
        self._tables = ModelTables(model, compaction_model, allowed_models, shared)
        main, compaction = self._tables.create(SystemClock(), None)
        self._tables.check()
        self._planner = ModelPlanner(
            main,
            instructions=_session_prompts(_read_instructions(instructions, home), files, skills, home, references),
            output=output,
            recall=recall,
            pursue=pursue,
            compaction_model=compaction,
            definitions=delegates,
            plan_mode=plan_mode,
            references=references,
            advisors=advisors,
        )
        self._planner.compaction = Compaction(self._planner.ask, deadline=compaction_timeout)
        planners: list[Any] = [self._planner]
        if rules_are != "off":
            planners.insert(0 if rules_are == "first" else 1, RulesPlanner(rules, tools=tools))
        super().__init__(planners, main=planners.index(self._planner))

    def attach(self, host: Host) -> None:
        """Create the models again with the agent's clock and budgets."""
        self._planner.use(*self._tables.create(host.clock, host.budgets))
        super().attach(host)

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return the parts of the model's next request (`ModelPlanner.prompt`)."""
        return await self._planner.prompt(perceptions, context, with_text=with_text)

    def warnings(self) -> list[str]:
        """Return a sentence for each problem with a file or a skill, and for each model without its key."""
        return self._planner.prompts.warnings() + [
            f"the environment variable {key_env!r}, which is to hold the key of model {name!r}, is not set: set it "
            "where the service is started, or this model cannot be asked"
            for name, key_env in self._tables.missing_keys().items()
        ]


#: The name under which the planner is registered.
assistant = Assistant


def _check_figures(*, context_tokens: int | None, max_tokens: int | None, recall: int, timeout: float) -> None:
    """Raise ConfigError for the first figure that is out of its bounds."""
    least = {"context_tokens": (context_tokens, LEAST_CONTEXT), "max_tokens": (max_tokens, LEAST_ANSWER),
             "recall": (recall, 0)}  # fmt: skip
    for name, (value, lowest) in least.items():
        if value is not None and value < lowest:
            raise ConfigError(f"{name} is {value!r}, expected {lowest} or more", path=(name,))
    if recall > 50:
        raise ConfigError(
            f"recall is {recall!r}, expected 50 or less: every request would carry them", path=("recall",)
        )
    if not timeout > 0:
        raise ConfigError(f"compaction_timeout is {timeout!r}, expected more than 0", path=("compaction_timeout",))


def _session_prompts(
    instructions: str,
    files: Sequence[str | FileTable],
    skills: str | SkillsTable | None,
    home: Home | None,
    references: bool,
) -> SessionPrompts:
    """Return the standing prompts; read files and skills now, so that their problems are known before a request.

    Raises: ConfigError.
    """
    prompt_files = PromptFiles(files, home) if files else None
    snapshots = Snapshots(Skills(skills, home)) if skills is not None else None
    if prompt_files is not None:
        prompt_files.look_now()
    if snapshots is not None:
        snapshots.skills.look()
    return SessionPrompts(instructions, prompt_files, snapshots, references=references)


def _read_instructions(instructions: str, home: Home | None) -> str:
    """Return the instructions; read them from a file if they name one. Raises: ConfigError."""
    if not instructions.startswith("@"):
        return instructions
    path = Path(home.config if home is not None else ".", instructions[1:])
    try:
        content = path.read_bytes()
        if len(content) > _LARGEST:
            raise ConfigError(
                f"instructions {instructions!r} have {len(content)} bytes, expected at most {_LARGEST}: each request "
                "would carry them",
                path=("instructions",),
            )
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ConfigError(
            f"instructions {instructions!r} cannot be read from {str(path)!r}: {reason}; write the text itself, or "
            "the name of a file beside the configuration",
            path=("instructions",),
        ) from error
