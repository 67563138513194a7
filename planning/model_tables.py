"""Models of `[plan.options]`: each is a name or a table with options. This module creates and checks them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from planning.llm.provider import Mode, ProviderModel
from planning.llm.provider.settings import THOUGHTS, Refusal
from planning.prompt.token_budget import answer_room
from planning.resilience.failover import Models
from spar.checks import shorten
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError
from spar.ports.budgets import RequestBudgets
from spar.records.run_options import Thinking

Positive = Annotated[float, Field(gt=0)]
Prices = dict[str, Annotated[float, Field(ge=0)]]
Temperature = Annotated[float, Field(ge=0, le=2)]
#: Smallest allowed numbers of tokens that a model can read, and of tokens of an answer.
LEAST_CONTEXT: Final = 1_000
LEAST_ANSWER: Final = 16


class ModelTable(BaseModel):
    """One model as a table; an option that is left out has its value in `[plan.options]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    base_url: str | None = None
    key_env: str | None = None
    api_key: Annotated[str, Field(min_length=1)] | None = None
    mode: Mode | None = None
    first_byte: Positive | None = None
    idle: Positive | None = None
    prices: Prices | None = None
    cache: bool | None = None
    context_tokens: Annotated[int, Field(ge=LEAST_CONTEXT)] | None = None
    max_tokens: Annotated[int, Field(ge=LEAST_ANSWER)] | None = None
    thinking: Thinking | None = None
    temperature: Temperature | None = None
    settings: dict[str, Any] | None = None


Named = str | ModelTable | Mapping[str, Any]
Path = tuple[str | int, ...]


class ModelTables:
    """The tables of a planner's models, by the option that names them; `create` creates the models from them.

    Args:
        models: the models that are asked, in this order.
        compaction: the model that sums up conversations.
        allowed: the models that a message may choose: names of `models`, and others; None: `models`.
        shared: options of all models that do not have their own value.

    Raises: ConfigError, with the `path` of the option, for a model that cannot be used.
    """

    def __init__(
        self,
        models: Named | Sequence[Named],
        compaction: Named | None,
        allowed: Sequence[Named] | None,
        shared: Mapping[str, Any],
    ) -> None:
        self._shared = {name: value for name, value in shared.items() if value is not None}
        chain = list(_tables("model", models))
        if not chain:
            raise ConfigError("at least one model is needed, such as 'openai:gpt-5'", path=("model",))
        names = {table.name for table, _ in chain}
        allowed_tables = [] if allowed is None else list(_tables("allowed_models", allowed))
        for number, (table, path) in enumerate(allowed_tables):
            is_again = table.name in [earlier.name for earlier, _ in allowed_tables[:number]]
            if is_again or (table.name in names and table != ModelTable(name=table.name)):
                raise ConfigError(f"model {table.name!r} is named twice: write its name here alone", path=path)
        self._allowed = None if allowed is None else tuple(table.name for table, _ in allowed_tables)
        self._tables: dict[str, list[tuple[ModelTable, Path]]] = {
            "model": chain,
            "compaction_model": [] if compaction is None else list(_tables("compaction_model", compaction)),
            "allowed_models": [(table, path) for table, path in allowed_tables if table.name not in names],
        }

    def create(self, clock: Clock, budgets: RequestBudgets | None) -> tuple[Models, Models | None]:
        """Create the models that are asked and those that sum up. Raises: ConfigError."""
        models = {
            option: [self._model(table, clock, path) for table, path in tables]
            for option, tables in self._tables.items()
        }
        main = Models(models["model"], clock=clock, budgets=budgets, further=models["allowed_models"],
                      allowed=self._allowed)  # fmt: skip
        compaction_models = models["compaction_model"]
        return main, Models(compaction_models, clock=clock, budgets=budgets) if compaction_models else None

    def check(self) -> None:
        """Check all models. Imports the library, which blocks.

        Raises: ConfigError for a model of an unknown provider, and for a setting that its model does not accept.
        """
        for table, path in self._all_tables():
            options, model = self._options_of(table), self._model(table, SystemClock(), path)
            if model.is_unknown:
                raise ConfigError(
                    f"model {table.name!r}: no such provider is known; expected PROVIDER:MODEL, such as 'openai:gpt-5' "
                    "or 'anthropic:claude-sonnet-5'; for a server of your own add base_url",
                    path=path,
                )
            refusal = _too_large(options) or model.refusal()
            if refusal is not None:
                place = tuple(refusal.setting.split("."))
                value: Any = options
                for step in place:
                    value = value[step]
                advice = _ADVICE.get(place[0], "")
                is_own = getattr(table, place[0]) is not None and (place[-1] in (table.settings or place))
                raise ConfigError(
                    f"{refusal.setting} of model {table.name!r} is {shorten(value, 80)}: {refusal.why}{advice}",
                    path=(*path, *place) if is_own else place,
                )

    def missing_keys(self) -> dict[str, str]:
        """Return, by model, the environment variables that should hold a key and are not set."""
        options_by_name = ((table.name, self._options_of(table)) for table, _ in self._all_tables())
        named = {name: options.get("key_env") for name, options in options_by_name if not options.get("api_key")}
        return {
            name: key_env for name, key_env in named.items() if isinstance(key_env, str) and not os.environ.get(key_env)
        }

    def _all_tables(self) -> Iterator[tuple[ModelTable, Path]]:
        for tables in self._tables.values():
            yield from tables

    def _options_of(self, table: ModelTable) -> dict[str, Any]:
        """Return the options of a model with the shared ones."""
        options = table.model_dump(exclude_none=True)
        if "settings" in options:
            options["settings"] = {**self._shared.get("settings", {}), **options["settings"]}
        return {**self._shared, **options}

    def _model(self, table: ModelTable, clock: Clock, path: Path) -> ProviderModel:
        options = self._options_of(table)
        own_options = table.model_dump(exclude_none=True)
        try:
            return ProviderModel(options.pop("name"), clock=clock, **options)
        except ConfigError as error:
            is_own = bool(error.path) and error.path[0] in own_options
            is_about_all = error.path in ((), ("model",))
            place = (*path, *error.path) if is_own else path[:1] if is_about_all else error.path
            raise ConfigError(str(error), path=place) from error


def _tables(option: str, named: Named | Sequence[Named]) -> Iterator[tuple[ModelTable, Path]]:
    """Yield the tables of an option with their paths. Raises: ConfigError for a model without a name."""
    is_one = isinstance(named, (str, ModelTable, Mapping))
    for number, item in enumerate([named] if is_one else named):
        path: Path = (option,) if is_one else (option, number)
        if item == "":
            raise ConfigError("a model needs a name, such as 'openai:gpt-5'", path=path)
        yield ModelTable(name=item) if isinstance(item, str) else ModelTable.model_validate(item), path


def _too_large(options: Mapping[str, Any]) -> Refusal | None:
    """Return the option that leaves too few of the context's tokens for the question; None if none does."""
    context, answer = options.get("context_tokens"), options.get("max_tokens")
    if context is None:
        return None
    if answer is not None and answer > context // 2:
        reason = f"it leaves too little of context_tokens ({context}) for the question, expected at most half of it"
        return Refusal("max_tokens", reason)
    thoughts = THOUGHTS[options.get("thinking") or "off"]
    if thoughts and thoughts + (answer or answer_room(context)) > context * 3 // 4:
        reason = f"thoughts may take {thoughts} tokens, which leaves too little of context_tokens ({context})"
        return Refusal("thinking", reason)
    return None


_ADVICE: Final = {
    "thinking": "; leave it out, or write what its provider understands in settings (extra_body)",
    "temperature": "; leave it out",
}
