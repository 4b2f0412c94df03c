"""The catalogue: the model names that callers may request, the models that answer, response shapes and prices.

It is read from a TOML file (`app/models.toml` shows every key). Errors are reported with file, table and key.
"""

import difflib
import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from app import host_lists
from app.causes import cause
from app.engines import rate_card
from app.engines.rate_card import Currency, Money, Rate, Work
from app.settings import SHIPPED_MODELS
from app.wrong_values import field_at, wrong

Capability = Literal["async_queue", "function_calling", "json_mode", "reasoning", "vision", "lora"]
Shape = Literal["native", "openai", "responses"]
Task = Literal["text-generation", "text-embeddings"]
Pooling = Literal["mean", "cls", "last"]
Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[int, Field(gt=0)]
HostName = Annotated[str, Field(pattern=f"^{host_lists.NAME.pattern}$")]

_KEY_FLAG = "--api-key"
_NO_KEY = (
    "takes no --api-key: an engine that Slackwater starts has a key of its own, which this one would replace, so that nobody "
    "could ask it; leave the flag out (for `slackwater engine run` set VLLM_API_KEY in its environment)"
)
_STRICT = ConfigDict(extra="forbid")
_NOT_INHERITED = ("aliases", "serves")
_PRICES = ("price", "prices")  # who has one of its own inherits neither
_FOLLOWS = ("name", "served", "served_aliases", "adopted")  # from the tables' names
_WRITTEN = {"since": "from"}  # the keys of fields that have another name here
_SHIPPED = "slackwater"  # what a catalogue extends to have the tables that come with us, too

_PATTERNS = {
    "currency": 'three capital letters, as in "EUR"',
    "package": 'the name and version of a package, as in "some-weights==1.0"',
    "sha256": "64 of the digits 0-9 and a-f",
    "media_hosts": 'names of hosts, as in "images.example.com"',
}


def _keyless(flags: tuple[str, ...]) -> tuple[str, ...]:
    """vLLM takes `_` for `-`, and the beginning of a name for the name where no other begins so."""
    names = [flag.split("=", 1)[0].replace("_", "-") for flag in flags]
    if any(name.startswith("--api-k") and _KEY_FLAG.startswith(name) for name in names):
        raise PydanticCustomError("key_given", _NO_KEY)
    return flags


class CatalogueError(ValueError):
    """The models file cannot be read or is invalid. The message names the file, the table and the key."""


@dataclass(frozen=True)
class Price:
    """The price of a million tokens, in `currency`."""

    __pydantic_config__ = _STRICT

    input: Money
    cached_input: Money
    output: Money
    currency: Currency = "USD"

    def always(self) -> Rate:
        """As a line of a rate card, where it is the first price of calls."""
        return Rate((Work.SYNC,), self.input, self.cached_input, self.output, self.currency)


@dataclass(frozen=True)
class WeightsSource:
    """The source of weights that are prepared locally: a GGUF file inside a package of the Python registry."""

    __pydantic_config__ = _STRICT

    package: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.]*$")]
    file: Text
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Launch:
    """How a managed engine of this model is started. `model_path` may contain `{data_dir}`; `flags` has no key."""

    __pydantic_config__ = _STRICT

    model_path: Text
    max_num_seqs: Positive
    max_num_batched_tokens: Positive
    flags: Annotated[tuple[str, ...], AfterValidator(_keyless)] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    source: WeightsSource | None = None


_LONGEST_NAME = 60  # that is compared with others, and said again
QUEUED: Capability = "async_queue"  # of a model whose requests can wait in the queue


@dataclass(frozen=True)
class Model:
    """One entry under its canonical name. `served` is the model whose engines answer: the pool's key.

    `served_aliases` are that model's aliases. `adopted`: an attached engine brought it, and no file describes it. `media_hosts`:
    from which its engines may fetch images that a request names. `prices`: its rate card, if it has one; `price` is then that of
    one kind of work at one moment (see `Catalogue.priced`).
    """

    __pydantic_config__ = _STRICT

    name: Text
    served: Text
    context_window: Positive
    shape: Shape = "native"
    price: Price | None = None
    launch: Launch | None = None
    aliases: tuple[Text, ...] = ()
    served_aliases: tuple[Text, ...] = ()
    description: str = ""
    task: Task = "text-generation"
    pooling: Pooling = "mean"
    default_max_tokens: Positive = 256
    capabilities: frozenset[Capability] = frozenset()
    adopted: bool = False
    media_hosts: tuple[HostName, ...] = ()
    prices: tuple[Rate, ...] = ()

    @property
    def card(self) -> tuple[Rate, ...]:
        """All its prices, also where it has but one."""
        return self.prices or ((self.price.always(),) if self.price else ())

    def price_of(self, work: Work, at: datetime) -> Price | None:
        """What this kind of work costs at this moment; None: nothing."""
        if not self.prices:
            return self.price
        rate = rate_card.holding(self.prices, work, at)
        return Price(rate.input, rate.cached_input, rate.output, rate.currency or "USD") if rate else None

    def priced(self, work: Work, at: datetime) -> "Model":
        """This model with the price of this kind of work at this moment."""
        return replace(self, price=self.price_of(work, at)) if self.prices else self

    def may_replace(self, asked: "Model", *, queued: bool) -> bool:
        """Whether a request for another model can be routed to this one, if its content fits. `queued`: it waits in the queue."""
        return self.task == asked.task and (not queued or QUEUED in self.capabilities)

    def name_at(self, serves: Sequence[str]) -> str | None:
        """The name of this model in requests to an engine that serves these names; None if the engine does not serve it.

        An engine that reports no names is assumed to serve the model under its own name.
        """
        if not serves:
            return self.served
        return next((name for name in (self.served, *self.served_aliases) if name in serves), None)

    def to_launch(self) -> Launch:
        """How to start a managed engine. Raises CatalogueError if only attached engines can serve the model."""
        if self.launch is None:
            remedy = "attach an engine with SLACKWATER_ENGINE_URL"
            raise CatalogueError(f"model {self.served!r} has no [launch] table; {remedy}")
        return self.launch

    def path(self, data_dir: Path) -> str:
        """The folder, or hub name, of the weights. Raises CatalogueError as `to_launch` does."""
        return self.to_launch().model_path.replace("{data_dir}", str(data_dir))

    def engine_arguments(self, data_dir: Path, cpu_dtype: str = "bfloat16") -> list[str]:
        """vLLM's command-line arguments for this model, without those of the network. Raises CatalogueError.

        `cpu_dtype` is the number format that this machine's CPU computes fastest.
        """
        launch = self.to_launch()
        return [
            *("--model", self.path(data_dir)),
            *("--served-model-name", self.served),
            *("--max-model-len", str(self.context_window)),
            *("--max-num-seqs", str(launch.max_num_seqs)),
            *("--max-num-batched-tokens", str(launch.max_num_batched_tokens)),
            *(flag.replace("{cpu_dtype}", cpu_dtype) for flag in launch.flags),
        ]


@dataclass(frozen=True)
class Catalogue:
    """Every model of one file, by canonical name."""

    models: Mapping[str, Model]
    _by_name: Mapping[str, Model]
    _priced: dict[tuple[Work, int], "Catalogue"] = field(default_factory=dict, compare=False, repr=False)

    @property
    def currencies(self) -> Set[str]:
        """Those of its prices."""
        return {rate.currency for model in self.models.values() for rate in model.card if rate.currency}

    def resolve(self, name: str) -> Model | None:
        """The model with this canonical name or alias; None if unknown."""
        return self._by_name.get(name)

    def unknown(self, name: str) -> str:
        """What whoever names an unknown model is told: the most similar one, else which there are."""
        known = sorted(self.models)
        near = difflib.get_close_matches(name[:_LONGEST_NAME], known, 1)
        instead = f"did you mean {near[0]}?" if near else f"the catalogue has {', '.join(known)}"
        return f"no such model {name[:_LONGEST_NAME]!r}; {instead}"

    def extended(self, more: Sequence[Model]) -> "Catalogue":
        """This catalogue, extended by those of the models whose name it does not have."""
        new = {model.name: model for model in more if model.name not in self._by_name}
        if not new:
            return self
        return Catalogue(MappingProxyType({**self.models, **new}), MappingProxyType({**self._by_name, **new}))

    def priced(self, work: Work, at: datetime) -> "Catalogue":
        """This catalogue with the prices of this kind of work at this moment. Itself where no model has a rate card."""
        if not self._changes:
            return self
        key = work, bisect_right(self._changes, at)
        if key not in self._priced:
            models = {name: model.priced(work, at) for name, model in self.models.items()}
            by_name = {name: models[model.name] for name, model in self._by_name.items()}
            self._priced[key] = Catalogue(MappingProxyType(models), MappingProxyType(by_name))
        return self._priced[key]

    @cached_property
    def _changes(self) -> list[datetime]:
        """When a price begins to hold."""
        return sorted({rate.since for model in self.models.values() for rate in model.prices})

    def served_by(self, engines: frozenset[str]) -> "Catalogue":
        """Those of these models which are answered by the engines of these models."""
        return Catalogue(
            MappingProxyType({name: model for name, model in self.models.items() if model.served in engines}),
            MappingProxyType({name: model for name, model in self._by_name.items() if model.served in engines}),
        )


_TABLES: Mapping[tuple[str, ...], type[Price | Rate | Launch | WeightsSource]] = {
    ("price",): Price,
    ("prices",): Rate,
    ("launch",): Launch,
    ("launch", "source"): WeightsSource,
}


@lru_cache(256)
def adopted(name: str, window: int, task: Task) -> Model:
    """The entry of a model that an attached engine serves and no file describes. Equal arguments return the same object."""
    return Model(
        name=name, served=name, context_window=window, task=task, capabilities=frozenset({"async_queue"}), adopted=True
    )


@cache
def load(path: Path) -> Catalogue:
    """Read and check a models file once per process. Raises CatalogueError."""
    try:
        content = tomllib.loads(path.read_text(), parse_float=Decimal)
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"The model catalogue {path} cannot be read: {cause(error)}") from error
    except ValueError as error:
        raise CatalogueError(f"{path} is not TOML: {error}") from error
    tables, extended = content.pop("models", None), content.pop("extends", None)
    if extended not in (None, _SHIPPED):
        raise CatalogueError(f'{path}: extends: must be "{_SHIPPED}", whose catalogue is meant, got {extended!r}')
    if content:
        raise CatalogueError(f"{path}: {next(iter(content))}: unknown; models stand in [models.<name>] tables")
    if not isinstance(tables, dict) or not tables:
        raise CatalogueError(f"{path}: [models]: at least one [models.<name>] table is needed")
    if extended:
        tables = {**tomllib.loads(SHIPPED_MODELS.read_text(), parse_float=Decimal)["models"], **tables}
    models = {name: _model(path, tables, name) for name in tables}
    return Catalogue(MappingProxyType(models), MappingProxyType(_names(path, models)))


def _model(path: Path, tables: Mapping[str, Any], name: str) -> Model:
    """The validated entry `name`, with missing keys taken from the model it serves."""
    where = f"{path}: [models.{_quoted(name)}"
    if not isinstance(tables[name], dict):
        raise CatalogueError(f"{where}]: must be a table")
    own = dict(tables[name])
    served = own.pop("serves", name)
    if served != name:
        target = tables.get(served) if isinstance(served, str) else None
        if not isinstance(target, dict) or "serves" in target:
            raise CatalogueError(f"{where}] serves: {served!r} is not a model of this file with its own engines")
        if "launch" in own:
            raise CatalogueError(f"{where}] launch: belongs to {served!r}, whose engines answer")
        not_inherited = _NOT_INHERITED if own.keys().isdisjoint(_PRICES) else (*_NOT_INHERITED, *_PRICES)
        own = {key: value for key, value in target.items() if key not in not_inherited} | own
        _check_window(where, own, served, target)
    for key in _FOLLOWS:
        if key in own:
            raise CatalogueError(f"{where}] {key}: unknown; it follows from the tables' names")
    aliases = tables[served].get("aliases", ())
    try:
        model = _checker().validate_python({**own, "name": name, "served": served, "served_aliases": aliases})
        base = [model.price.always()] if model.price and model.prices else []
        return replace(model, prices=rate_card.checked([*base, *model.prices]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *table, key = [str(part) for part in first["loc"] if not isinstance(part, int)]
        known = fields(_TABLES.get(tuple(table), Model))
        names = [_WRITTEN.get(each.name, each.name) for each in known if each.name not in _FOLLOWS]
        said = wrong(
            first,
            secret="env" in table,
            table="a table",
            pattern=_PATTERNS.get(key, ""),
            names=names if table else [*names, "serves"],
            of=field_at(Model, first["loc"]),
        )
        raise CatalogueError(f"{where}{''.join('.' + t for t in table)}] {key}: {said}") from error
    except ValueError as error:
        raise CatalogueError(f"{where}] prices: {error}") from error


def _check_window(where: str, own: Mapping[str, Any], served: str, target: Mapping[str, Any]) -> None:
    """Check that a name promises no larger context window than its engines have."""
    ours, theirs = own.get("context_window"), target.get("context_window")
    if isinstance(ours, int) and isinstance(theirs, int) and ours > theirs:
        raise CatalogueError(
            f"{where}] context_window: {ours} is more than the {theirs} of {served!r}, whose engines answer"
        )


def _names(path: Path, models: Mapping[str, Model]) -> dict[str, Model]:
    """The models by canonical name and alias. Raises CatalogueError if a name is used twice."""
    names = dict(models)
    for model in models.values():
        for alias in model.aliases:
            if alias in names:
                where = f"{path}: [models.{_quoted(model.name)}] aliases"
                raise CatalogueError(f"{where}: {alias!r} already means {names[alias].served!r}")
            names[alias] = model
    return names


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'


@cache
def _checker() -> TypeAdapter[Model]:
    return TypeAdapter(Model)
