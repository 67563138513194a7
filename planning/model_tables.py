"""Models as `[plan.options]` names them: a name, or a table where a name does not say enough; and what cannot be so."""

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
#: Tokens that a model reads, and those of an answer, at the least.
LEAST_CONTEXT: Final = 1_000
LEAST_ANSWER: Final = 16


class ModelTable(BaseModel):
    """One model, where a name alone does not say enough; what is left out is as the options beside it say."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    base_url: str | None = None
    key_env: str | None = None
    api_key: Annotated[str, Field(min_length=1)] | None = None
    mode: Mode | None = None
    first_byte: Positive | None = None
    idle: Positive | None = None
    prices: Prices | None = None
    context_tokens: Annotated[int, Field(ge=LEAST_CONTEXT)] | None = None
    max_tokens: Annotated[int, Field(ge=LEAST_ANSWER)] | None = None
    thinking: Thinking | None = None
    temperature: Temperature | None = None
    settings: dict[str, Any] | None = None


Named = str | ModelTable | Mapping[str, Any]
Path = tuple[str | int, ...]


class ModelTables:
    """The models of a planner, by the option that names them; makes them anew for another clock and other budgets.

    Args:
        models: those that are asked, in this order.
        compaction: those that sum up.
        allowed: those that a message may choose: names of `models`, and others; None: `models`.
        shared: options of all of them, where they do not say otherwise.

    Raises: ConfigError, with the `path` of the option, for what cannot be used.
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
        chosen = [] if allowed is None else list(_tables("allowed_models", allowed))
        for number, (table, path) in enumerate(chosen):
            is_again = table.name in [each.name for each, _ in chosen[:number]]
            if is_again or (table.name in names and table != ModelTable(name=table.name)):
                raise ConfigError(f"model {table.name!r} is named twice: write its name here alone", path=path)
        self._allowed = None if allowed is None else tuple(table.name for table, _ in chosen)
        self._tables: dict[str, list[tuple[ModelTable, Path]]] = {
            "model": chain,
            "compaction_model": [] if compaction is None else list(_tables("compaction_model", compaction)),
            "allowed_models": [(table, path) for table, path in chosen if table.name not in names],
        }

    def made(self, clock: Clock, budgets: RequestBudgets | None) -> tuple[Models, Models | None]:
        """Return the models that are asked, and those that sum up. Raises: ConfigError."""
        made = {
            option: [self._model(table, clock, path) for table, path in tables]
            for option, tables in self._tables.items()
        }
        main = Models(made["model"], clock=clock, budgets=budgets, further=made["allowed_models"],
                      allowed=self._allowed)  # fmt: skip
        compaction = made["compaction_model"]
        return main, Models(compaction, clock=clock, budgets=budgets) if compaction else None

    def check(self) -> None:
        """Raises: ConfigError for a model of an unknown provider, and for a setting that its model does not take.

        Imports the library, which blocks.
        """
        for table, path in self._each():
            own, model = self._own(table), self._model(table, SystemClock(), path)
            if model.is_unknown:
                raise ConfigError(
                    f"model {table.name!r}: no such provider is known; expected PROVIDER:MODEL, such as 'openai:gpt-5' "
                    "or 'anthropic:claude-sonnet-5'; for a server of your own add base_url",
                    path=path,
                )
            found = _too_large(own) or model.refusal()
            if found is not None:
                place = tuple(found.setting.split("."))
                value: Any = own
                for step in place:
                    value = value[step]
                advice = _ADVICE.get(place[0], "")
                is_own = getattr(table, place[0]) is not None and (place[-1] in (table.settings or place))
                raise ConfigError(
                    f"{found.setting} of model {table.name!r} is {shorten(value, 80)}: {found.why}{advice}",
                    path=(*path, *place) if is_own else place,
                )

    def missing_keys(self) -> dict[str, str]:
        """Return the variables of the environment that are to hold keys and do not, by model."""
        owns = ((table.name, self._own(table)) for table, _ in self._each())
        named = {name: own.get("key_env") for name, own in owns if not own.get("api_key")}
        return {
            name: key_env for name, key_env in named.items() if isinstance(key_env, str) and not os.environ.get(key_env)
        }

    def _each(self) -> Iterator[tuple[ModelTable, Path]]:
        for tables in self._tables.values():
            yield from tables

    def _own(self, table: ModelTable) -> dict[str, Any]:
        """Return the options of a model, those that are shared included."""
        own = table.model_dump(exclude_none=True)
        if "settings" in own:
            own["settings"] = {**self._shared.get("settings", {}), **own["settings"]}
        return {**self._shared, **own}

    def _model(self, table: ModelTable, clock: Clock, path: Path) -> ProviderModel:
        options = self._own(table)
        own = table.model_dump(exclude_none=True)
        try:
            return ProviderModel(options.pop("name"), clock=clock, **options)
        except ConfigError as error:
            is_own = bool(error.path) and error.path[0] in own
            is_about_all = error.path in ((), ("model",))
            place = (*path, *error.path) if is_own else path[:1] if is_about_all else error.path
            raise ConfigError(str(error), path=place) from error


def _tables(option: str, named: Named | Sequence[Named]) -> Iterator[tuple[ModelTable, Path]]:
    """Yield the tables of an option, each with its place. Raises: ConfigError for a model without a name."""
    is_one = isinstance(named, (str, ModelTable, Mapping))
    for number, each in enumerate([named] if is_one else named):
        path: Path = (option,) if is_one else (option, number)
        if each == "":
            raise ConfigError("a model needs a name, such as 'openai:gpt-5'", path=path)
        yield ModelTable(name=each) if isinstance(each, str) else ModelTable.model_validate(each), path


def _too_large(own: Mapping[str, Any]) -> Refusal | None:
    """Return the option that leaves too little for the question of what a model reads."""
    context, answer = own.get("context_tokens"), own.get("max_tokens")
    if context is None:
        return None
    if answer is not None and answer > context // 2:
        why = f"it leaves too little of context_tokens ({context}) for the question, expected at most half of it"
        return Refusal("max_tokens", why)
    thoughts = THOUGHTS[own.get("thinking") or "off"]
    if thoughts and thoughts + (answer or answer_room(context)) > context * 3 // 4:
        why = f"thoughts may take {thoughts} tokens, which leaves too little of context_tokens ({context})"
        return Refusal("thinking", why)
    return None


_ADVICE: Final = {
    "thinking": "; leave it out, or write what its provider understands in settings (extra_body)",
    "temperature": "; leave it out",
}
