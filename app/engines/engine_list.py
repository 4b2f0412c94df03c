"""The engines that `SLACKWATER_ENGINES` names, and the names of those that only have an address. Pure.

file:engines.toml       a table [[engine]] for each: name, url, and if wanted model, slots, kind, page_dir
dns://HOST:8000-8007    each address of HOST is an engine at each of the ports
"""

import itertools
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.settings import MOST_SLOTS, Settings, bare_url
from app.wrong_values import field_at, wrong

FILE, DNS = "file:", "dns://"
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_PATTERNS = {
    "name": "a letter or digit, then up to 99 letters, digits, dots, hyphens and underscores",
    "url": "http://HOST:PORT or https://HOST:PORT",
}
_EXAMPLE = "dns://vllm.example.svc:8000-8007,8100"


class EngineListError(Exception):
    """The list cannot be read, or names no engine. `remedy`: how to correct it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class ListedEngine:
    """An engine of the list. Empty or None is what the list does not say; then the settings hold. `kind`: its dialect."""

    url: str
    name: str = ""
    model: str | None = None
    slots: int | None = None
    kind: str | None = None
    page_dir: str | None = None

    def settings(self, settings: Settings) -> Settings:
        """The settings of a worker of this engine alone. Those that the list has win."""
        own: dict[str, Any] = {"engines": "", "engine_name": self.name, "engine_url": self.url}
        listed = {"model": self.model, "slots": self.slots, "dialect": self.kind}
        own |= {f"engine_{name}": value for name, value in listed.items() if value is not None}
        return settings.model_copy(update=own | ({"page_dir": self.page_dir} if self.page_dir else {}))


@dataclass(frozen=True, slots=True)
class KnownEngine:
    """An engine's row. `held`: a worker with a live lease controls it. `drained`: an operator takes it out of service."""

    name: str
    url: str
    held: bool
    drained: bool


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    url: Annotated[str, Field(pattern="^https?://[^/]+")]
    model: Annotated[str, Field(min_length=1)] | None = None
    slots: Annotated[int, Field(gt=0, le=MOST_SLOTS)] | None = None
    kind: Literal["auto", "vllm", "sglang", "trtllm", "openai"] | None = None
    page_dir: Annotated[str, Field(min_length=1)] | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    engine: list[_Entry] = []


def of_file(text: str, place: str) -> list[ListedEngine]:
    """The engines of a file. `place`: its path, for errors. Raises EngineListError."""
    try:
        entries = _File.model_validate(tomllib.loads(text)).engine
    except tomllib.TOMLDecodeError as error:
        raise EngineListError(
            f"{place} is not TOML: {error}", "Correct that line; docs/attach.md has an example."
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        key = str(first["loc"][-1])
        said = wrong(
            first,
            secret=key == "url",  # it may have a password
            table="a table",
            pattern=_PATTERNS.get(key, ""),
            names=list((_File if len(first["loc"]) == 1 else _Entry).model_fields),
            of=field_at(_File, first["loc"]),
        )
        raise EngineListError(
            f"{place}: {where}: {said}", "Correct that line; docs/attach.md lists the keys."
        ) from error
    found = [ListedEngine(bare_url(entry.url), **entry.model_dump(exclude={"url"})) for entry in entries]
    for what, values in (("name", [each.name for each in found]), ("url", [each.url for each in found])):
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise EngineListError(f"{place}: two engines have the {what} {twice}.", f"Give each a {what} of its own.")
    if not found:
        raise EngineListError(f"{place} names no engine.", "Add a table [[engine]] with name and url.")
    return found


def dns_query(spec: str) -> tuple[str, list[int]]:
    """The host and the ports of a `dns://`. Raises EngineListError."""
    host, _, listed = spec.removeprefix(DNS).rpartition(":")
    ports: list[int] = []
    for part in listed.split(","):
        match = _PORTS.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < first <= last < 65536:
            raise EngineListError(f"SLACKWATER_ENGINES={spec}: {part!r} is no port or range.", f"Example: {_EXAMPLE}")
        ports += range(first, last + 1)
    if not host:
        raise EngineListError(f"SLACKWATER_ENGINES={spec} names no host.", f"Example: {_EXAMPLE}")
    return host.strip("[]"), list(dict.fromkeys(ports))


def name_prefix(host: str) -> str:
    """What the names of a host's engines begin with: the host's first label, or the whole of an address."""
    label = host if re.fullmatch(r"[0-9.]+|.*:.*", host) else host.partition(".")[0]
    return re.sub("[^A-Za-z0-9.-]", "-", label) + "-"


def named(
    urls: Sequence[str], known: Collection[KnownEngine], prefix: str, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A name, PREFIX and a number, for each URL. An address keeps the name of its row. A new one takes the lowest number that is
    not in use: that of an engine that is gone, which so has one row for all its addresses.

    In use is what a live worker controls or an operator has drained. `own`: names that were given before and have no row yet.
    """
    names = {url: name for url, name in (own or {}).items() if url in urls}
    rows = {row.name: row for row in known if re.fullmatch(re.escape(prefix) + r"\d+", row.name)}
    for row in sorted(rows.values(), key=lambda row: (not row.held, _number(row, prefix))):
        if row.url in urls and row.name not in names.values():
            names.setdefault(row.url, row.name)
    used = {*names.values(), *(own or {}).values(), *(row.name for row in rows.values() if row.held or row.drained)}
    free = (name for number in itertools.count() if (name := f"{prefix}{number}") not in used)
    return {url: names.get(url) or next(free) for url in urls}


def _number(row: KnownEngine, prefix: str) -> int:
    return int(row.name.removeprefix(prefix))
