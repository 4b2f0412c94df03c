"""Compares a running engine's description of itself with what is promised for its model. Pure.

A model's context window is a promise to callers: every engine that serves the model has at least that window. The catalogue
makes the promise if it describes the model. Otherwise the engine makes it, and the model is *adopted*.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.engines import dialects, missing_flags
from app.engines.catalogue import Catalogue, Model, Task, adopted
from app.engines.dialects import VLLM, VLLM_TERMS, Dialect, Terms
from app.engines.missing_flags import NO_PRIORITY

DOWN = "engine_down"
MISSING = "model_missing"
TOO_SMALL = "window_too_small"
UNTOLD = "window_unknown"
KEY = "key_refused"
FOREIGN = "not_vllm"
UNUSABLE = "engine_unusable"
SLOTS = "slots_unknown"
SLOTS_WRONG = "slots_wrong"
_NAME_SLOTS = "Name its --max-num-seqs: --slots, or SLACKWATER_ENGINE_SLOTS, or `slots` in the list of engines."
OPEN_MEDIA = "media_domains_open"

PRIORITY = "priority"
NO_DOMAIN = "none.invalid"  # RFC 2606: it never exists. If no domain is named, vLLM fetches media from any host


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """A problem of an engine, and the remedy for its operator. Contains no URL and no secret."""

    code: str
    message: str
    remedy: str


class Contradiction(Exception):
    """The engine does not match the settings or the catalogue."""

    def __init__(self, problem: EngineProblem) -> None:
        super().__init__(f"{problem.message} {problem.remedy}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Sighting:
    """An engine's description of itself. `windows`: the context window in tokens by served name, LoRA adapters last.

    None means not reported. vLLM reports `policy`, `slots` and `open_media` (it may fetch media from any host) only in
    development mode. `terms`: how to speak to it. `slots`: requests that it runs at once. `lacks`: flags that it should have.
    """

    windows: Mapping[str, int | None]
    version: str | None = None
    policy: str | None = None
    open_media: bool = False
    terms: Terms = VLLM_TERMS
    slots: int | None = None
    lacks: tuple[EngineProblem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the engine serves."""
        return tuple(self.windows)


UNSEEN = Sighting({})


def read(
    models: object, version: object = None, info: object = None, page: object = None, dialect: Dialect = VLLM
) -> Sighting:
    """Parse the JSON of /v1/models, /version and /server_info, and the text of the metrics page of an engine of this dialect;
    None if missing. Raises ValueError without a model list.
    """
    data = models.get("data") if isinstance(models, Mapping) else None
    if not isinstance(data, list):
        raise ValueError("/v1/models: no list of models")  # noqa: TRY004
    entries = [entry for entry in data if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)]
    entries.sort(key=lambda entry: entry.get("parent") is not None)
    policy = _inside(info, "vllm_config", "scheduler_config", "policy")
    release = _inside(version, "version") or _inside(info, "version")
    return Sighting(
        {entry["id"]: _count(entry.get("max_model_len")) for entry in entries},
        release if isinstance(release, str) else None,
        policy if isinstance(policy, str) else None,
        _fetches_from_any_host(_inside(info, "vllm_config", "model_config")),
        dialects.terms_of(dialect, info),
        dialects.slots_of(dialect, info, page),
        tuple(EngineProblem(*lack) for lack in missing_flags.lacks(dialect, info, page)),
    )


def task_of(document: object) -> Task:
    """The task of an engine, from its OpenAPI document: an embeddings engine has no chat route."""
    paths = document.get("paths") if isinstance(document, Mapping) else None
    if isinstance(paths, Mapping) and "/v1/embeddings" in paths and "/v1/chat/completions" not in paths:
        return "text-embeddings"
    return "text-generation"


def model_for(models: Catalogue, seen: Sighting, requested: str | None, task: Task = "text-generation") -> Model:
    """The model that an attached engine serves: the `requested` one, else the first of its names that the catalogue knows,
    else its first name. Raises Contradiction.
    """
    names = (requested,) if requested else seen.names
    entry = next((found for name in names if (found := models.resolve(name)) is not None), None)
    if entry is None:
        return _adopted(seen, requested, task)
    if (problem := fault(entry, seen, entry.context_window)) is not None:
        raise Contradiction(problem)
    return entry


def fault(model: Model, seen: Sighting, window: int) -> EngineProblem | None:
    """Why the engine cannot serve this model with the promised window in tokens; None if it can.

    A value that the engine does not report is assumed to be right.
    """
    name = model.name_at(seen.names)
    if name is None:
        return _missing(model.served, seen)
    theirs = seen.windows.get(name)
    if theirs is None or theirs >= window:
        return None
    lower = (
        "restart the worker when none of its batches is unfinished and no other engine serves it, to promise less"
        if model.adopted
        else f"set `context_window = {theirs}` for it in the catalogue (SLACKWATER_MODELS_FILE)"
    )
    return EngineProblem(
        TOO_SMALL,
        f"The engine's context window is {theirs} tokens; {model.served} is promised with {window}.",
        f"Start the engine with --max-model-len {window} or more, or {lower}.",
    )


def shortcomings(seen: Sighting, *, inside: bool = False) -> tuple[EngineProblem, ...]:
    """Problems of an engine that can still be used, the worst first. `inside`: it runs Slackwater's scheduler (L2)."""
    found = []
    if not inside and seen.policy not in (None, PRIORITY):
        late = f"The engine's scheduling policy is {seen.policy}: batch requests in its queue delay synchronous ones."
        found.append(EngineProblem(NO_PRIORITY, late, "Start it with --scheduling-policy priority."))
    if seen.open_media:
        fetches = "The engine takes images and may fetch media from any host, those of its own network included."
        found.append(EngineProblem(OPEN_MEDIA, fetches, f"Start it with --allowed-media-domains {NO_DOMAIN}."))
    return (*seen.lacks, *found)


def slots_unknown(found: int) -> EngineProblem:
    """The problem of an engine that does not say how many requests it runs at once. `found`: what it was seen to run while others
    waited; 0: nothing yet.
    """
    learned = f"; it was seen to run {found} while others waited" if found else ", and that is being found out"
    return EngineProblem(
        SLOTS,
        f"The engine does not say how many requests it runs at once{learned}.",
        _NAME_SLOTS,
    )


def slots_unseen(cap: int) -> EngineProblem:
    """The problem of an engine that shows neither its slots nor its load. `cap`: batch requests that it gets for that reason."""
    return EngineProblem(
        SLOTS,
        f"The engine shows neither its load nor how many requests it runs at once, so it gets at most {cap} of batch work.",
        _NAME_SLOTS,
    )


def slots_wrong(given: int, found: int) -> EngineProblem:
    """The problem of an engine that was seen to run fewer requests at once than the settings say."""
    return EngineProblem(
        SLOTS_WRONG,
        f"The settings say that the engine runs {given:,} requests at once, but it ran {found:,} while others waited.",
        _NAME_SLOTS,
    )


def away(*, managed: bool = False) -> EngineProblem:
    """The problem of an engine that does not answer. `managed`: its worker starts and restarts it."""
    if managed:
        return EngineProblem(
            DOWN, "The engine is being started.", "Wait; slackwater logs gpu-worker shows the progress."
        )
    return EngineProblem(DOWN, "The engine does not answer.", "Start it, or correct --attach (SLACKWATER_ENGINE_URL).")


def key_refused(status: int) -> EngineProblem:
    """The problem of an engine that refuses the API key."""
    return EngineProblem(
        KEY,
        f"The engine refuses our key (HTTP {status}).",
        "Set SLACKWATER_ENGINE_API_KEY to the key it was started with.",
    )


def unusable(reason: str) -> EngineProblem:
    """The problem of an engine that is there, but answers no request. `reason`: what happens to one."""
    return EngineProblem(
        UNUSABLE,
        f"The engine is there, but {reason}.",
        "See its log, and whatever is between it and its worker: proxies, firewalls, TLS, the key.",
    )


def foreign() -> EngineProblem:
    """The problem of a URL where another program answers, or which has a path."""
    return EngineProblem(
        FOREIGN,
        "The server at the engine's URL answers, but not as an engine does: it has neither /health nor /v1/models (HTTP 404).",
        "Correct --attach (SLACKWATER_ENGINE_URL): host and port of the engine, without a path.",
    )


def lists_as_slackwater(models: object) -> bool:
    """Whether a list of models may be that of an API of Slackwater: every model in it is Slackwater's, or there is none."""
    data = models.get("data") if isinstance(models, Mapping) else None
    return isinstance(data, list) and all(
        isinstance(entry, Mapping) and entry.get("owned_by") == "slackwater" for entry in data
    )


def is_slackwater(status: object) -> bool:
    """Whether a server whose `/status` answers this is an API of Slackwater."""
    return isinstance(status, Mapping) and {"parts", "engines", "callers"} <= status.keys()


def slackwater() -> EngineProblem:
    """The problem of a URL where Slackwater's own API answers."""
    return EngineProblem(
        FOREIGN,
        "The server at the engine's URL is a Slackwater, not an engine.",
        "Correct --attach (SLACKWATER_ENGINE_URL): host and port of the engine itself.",
    )


def _adopted(seen: Sighting, requested: str | None, task: Task) -> Model:
    name = requested or next(iter(seen.names), None)
    if name is None or name not in seen.windows:
        raise Contradiction(_missing(requested, seen))
    window = seen.windows[name]
    if window is None:
        raise Contradiction(
            EngineProblem(
                UNTOLD,
                f"The engine does not report the context window of {name} (max_model_len at /v1/models).",
                f"Describe {name} in the catalogue: SLACKWATER_MODELS_FILE.",
            )
        )
    return adopted(name, window, task)


def _missing(requested: str | None, seen: Sighting) -> EngineProblem:
    if requested is None:
        fix = "Name a model that the catalogue describes: --model (SLACKWATER_ENGINE_MODEL)."
        return EngineProblem(MISSING, "The engine does not say what it serves.", fix)
    served = ", ".join(seen.names) or "no model that it names"
    name = next(iter(seen.names), None)
    other = f", or name what it serves: --model {name} (SLACKWATER_ENGINE_MODEL={name})" if name else ""
    return EngineProblem(
        MISSING,
        f"The engine serves {served}, not {requested}.",
        f"Start it with --served-model-name {requested}{other}.",
    )


def _fetches_from_any_host(config: object) -> bool:
    """Whether this vLLM configuration has a multimodal model without a list of allowed media domains."""
    return _inside(config, "multimodal_config") is not None and not _inside(config, "allowed_media_domains")


def _inside(value: object, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
