"""The labels by which spend is reported: workflow, task, variant, prompt family, and whether the work is critical. Pure.

Each label is the first of: its header, its key in the request's metadata, its key in `cf-aig-metadata`, a tag `NAME:value`.
A header that is not in form is refused. The other places hold what callers wrote for themselves, so their text is put into form.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import orjson

from app.errors import BadInput

GATEWAY_METADATA = "cf-aig-metadata"  # Cloudflare AI Gateway's header: a flat JSON object
HEADERS = {name: f"x-slackwater-{name}" for name in ("workflow", "task", "critical", "variant")}
LABEL = "^[a-z0-9][a-z0-9._-]{0,63}$"
_NAME = re.compile(LABEL.strip("^$"))
_LONGEST = 64
_FORM = f"1 to {_LONGEST} of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
_OTHER = re.compile(r"[^a-z0-9._-]+")
_FAMILY = "prompt_family"
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class SpendLabels:
    """The labels of one request. `-`: none was given. Work is critical unless its caller says that it is not."""

    workflow: str = "default"
    task: str = "-"
    critical: bool = True
    variant: str = "-"
    family: str = "-"


NO_SPEND_LABELS = SpendLabels()


@dataclass(frozen=True, slots=True)
class Spender:
    """Whose a request is, and under which labels. What is done on its behalf belongs to the same key and labels."""

    key_id: str = ""
    labels: SpendLabels = NO_SPEND_LABELS

    def stored(self) -> dict[str, Any]:
        """As a row keeps it. A prompt family is that of one prompt."""
        return {"key": self.key_id, **asdict(replace(self.labels, family=NO_SPEND_LABELS.family))}

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """From a row; None: nobody is known."""
        if stored is None:
            return cls()
        return cls(stored["key"], SpendLabels(**{name: value for name, value in stored.items() if name != "key"}))


def read(headers: Mapping[str, str], metadata: Mapping[str, str] | None, tags: Sequence[str]) -> SpendLabels:
    """The labels of a request. Raises BadInput naming the label and where it was given."""
    own = {name: headers[header] for name, header in HEADERS.items() if header in headers}
    _check(own)
    sources = [own, *_elsewhere(headers, metadata, tags)]
    if not any(sources):
        return NO_SPEND_LABELS
    return SpendLabels(
        _first(sources, "workflow") or NO_SPEND_LABELS.workflow,
        _first(sources, "task") or NO_SPEND_LABELS.task,
        _TRUTH.get(_first(sources, "critical") or "", NO_SPEND_LABELS.critical),
        _first(sources, "variant") or NO_SPEND_LABELS.variant,
        _first(sources, _FAMILY) or NO_SPEND_LABELS.family,
    )


def pinned(labels: SpendLabels, pins: Mapping[str, str], headers: Mapping[str, str]) -> SpendLabels:
    """The labels with those that the key pins. Raises BadInput for a header that contradicts one; other places are overruled."""
    for name, value in pins.items():
        header = HEADERS[name]
        if header in headers and _value(name, headers[header]) != _value(name, value):
            message = f"{header}: this key is pinned to {name} {value}; leave the header out, or use another key"
            raise BadInput(message, param=header)
    return replace(labels, **{name: _value(name, value) for name, value in pins.items()}) if pins else labels


def check_pin(name: str, value: str) -> str | None:
    """What is wrong with a label that a key is to pin. None: nothing."""
    if name not in HEADERS:
        return f"{name} is no label that a key can pin; choose from {', '.join(HEADERS)}"
    if name == "critical":
        return None if value in _TRUTH else "critical must be true or false"
    return None if _NAME.fullmatch(value) else f"{name} must be {_FORM}, not {value[:70]!r}"


def _value(name: str, text: str) -> Any:
    return _TRUTH.get(text.lower()) if name == "critical" else text


def _check(own: Mapping[str, str]) -> None:
    for name, text in own.items():
        header = HEADERS[name]
        if name == "critical" and text.lower() not in _TRUTH:
            raise BadInput(f"{header}: must be true or false, not {text[:40]!r}", param=header)
        if not _NAME.fullmatch(text) and name != "critical":
            raise BadInput(f"{header}: must be {_FORM}, not {text[:70]!r}", param=header)


def _elsewhere(
    headers: Mapping[str, str], metadata: Mapping[str, str] | None, tags: Sequence[str]
) -> Iterator[Mapping[str, object]]:
    """What the request gives beside our headers, in the order in which it counts."""
    if metadata:
        yield metadata
    if text := headers.get(GATEWAY_METADATA):
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(text)
            if isinstance(found, dict):
                yield found
    if tags:
        yield dict(tag.split(":", 1) for tag in tags if ":" in tag)


def _first(sources: Sequence[Mapping[str, object]], name: str) -> str | None:
    """The first text of this label, put into form; None: there is none."""
    texts = (str(source[name]).lower() for source in sources if source.get(name) is not None)
    return next((found for text in texts if (found := _OTHER.sub("-", text).strip("-._")[:_LONGEST])), None)
