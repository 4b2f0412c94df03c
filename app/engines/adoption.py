"""What a running engine says of itself, held against what is promised of its model. Pure.

A model's context window is a promise to callers: every engine that serves it has that window or a larger one. The
catalogue makes the promise where it knows the model; else the engine does, and the model is *adopted*.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.engines.catalogue import Catalogue, Model, Task, adopted

DOWN = "engine_down"
MISSING = "model_missing"
TOO_SMALL = "window_too_small"
UNTOLD = "window_unknown"
KEY = "key_refused"
FOREIGN = "not_vllm"
NO_PRIORITY = "no_priority_scheduling"
OPEN_MEDIA = "media_domains_open"

PRIORITY = "priority"
NO_DOMAIN = "none.invalid"  # RFC 2606: it never exists; with no domain named vLLM would fetch media from any


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """What is wrong with an engine, and what its operator can do about it. Names no URL and no secret."""

    code: str
    message: str
    remedy: str


class Contradiction(Exception):
    """The engine is not what it is said to be."""

    def __init__(self, problem: EngineProblem) -> None:
        super().__init__(f"{problem.message} {problem.remedy}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Sighting:
    """What an engine said. `windows`: the names it serves, LoRA adapters last, each with its context window in tokens.

    None is what it did not say; vLLM tells its scheduling policy in development mode only, and whether it fetches media from
    anywhere (`open_media`).
    """

    windows: Mapping[str, int | None]
    version: str | None = None
    policy: str | None = None
    open_media: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What it serves."""
        return tuple(self.windows)


UNSEEN = Sighting({})


def read(models: object, version: object = None, info: object = None) -> Sighting:
    """From the JSON at /v1/models, /version and /server_info, each None if there is none. Raises ValueError for no list."""
    data = models.get("data") if isinstance(models, Mapping) else None
    if not isinstance(data, list):
        raise ValueError("/v1/models: no list of models")  # noqa: TRY004
    entries = [entry for entry in data if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)]
    entries.sort(key=lambda entry: entry.get("parent") is not None)
    policy = _inside(info, "vllm_config", "scheduler_config", "policy")
    said = _inside(version, "version")
    return Sighting(
        {entry["id"]: _count(entry.get("max_model_len")) for entry in entries},
        said if isinstance(said, str) else None,
        policy if isinstance(policy, str) else None,
        _fetches_anything(_inside(info, "vllm_config", "model_config")),
    )


def task_of(document: object) -> Task:
    """What an engine is for, by its OpenAPI document: one that generates nothing has no chat."""
    paths = document.get("paths") if isinstance(document, Mapping) else None
    if isinstance(paths, Mapping) and "/v1/embeddings" in paths and "/v1/chat/completions" not in paths:
        return "text-embeddings"
    return "text-generation"


def model_for(models: Catalogue, seen: Sighting, wanted: str | None, task: Task = "text-generation") -> Model:
    """The model that an attached engine is to serve: the `wanted` one, else the first of its names that the catalogue
    knows, else its own. Raises Contradiction.
    """
    names = (wanted,) if wanted else seen.names
    entry = next((found for name in names if (found := models.resolve(name)) is not None), None)
    if entry is None:
        return _adopted(seen, wanted, task)
    if (problem := fault(entry, seen, entry.context_window)) is not None:
        raise Contradiction(problem)
    return entry


def fault(model: Model, seen: Sighting, window: int) -> EngineProblem | None:
    """Why nothing may be sent to this engine for a model of that promised window in tokens; None: it may.

    What the engine does not say is believed of it.
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
    """What is wrong with an engine that can be used all the same, the worst first. `inside`: its scheduler is ours."""
    found = []
    if not inside and seen.policy not in (None, PRIORITY):
        late = f"The engine's scheduling policy is {seen.policy}: batch requests in its queue delay synchronous ones."
        found.append(EngineProblem(NO_PRIORITY, late, "Start it with --scheduling-policy priority."))
    if seen.open_media:
        fetches = "The engine takes images and may fetch media from any host, those of its own network included."
        found.append(EngineProblem(OPEN_MEDIA, fetches, f"Start it with --allowed-media-domains {NO_DOMAIN}."))
    return tuple(found)


def away(*, managed: bool = False) -> EngineProblem:
    """The engine does not answer. `managed`: its worker starts it, and starts it anew."""
    if managed:
        return EngineProblem(
            DOWN, "The engine is being started.", "Wait; the log of its GPU worker says how far it is."
        )
    return EngineProblem(DOWN, "The engine does not answer.", "Start it, or mend SLACKWATER_ENGINE_URL.")


def key_refused(status: int) -> EngineProblem:
    """The engine wants another key, or one at all."""
    return EngineProblem(
        KEY,
        f"The engine refuses our key (HTTP {status}).",
        "Set SLACKWATER_ENGINE_API_KEY to the key it was started with.",
    )


def foreign() -> EngineProblem:
    """Something else listens there, or the URL has a path too many."""
    return EngineProblem(
        FOREIGN,
        "What is at the engine's URL answers, but not as vLLM does: it has neither /health nor /v1/models (HTTP 404).",
        "Mend --attach (SLACKWATER_ENGINE_URL): host and port of vLLM, without a path.",
    )


def _adopted(seen: Sighting, wanted: str | None, task: Task) -> Model:
    name = wanted or next(iter(seen.names), None)
    if name is None or name not in seen.windows:
        raise Contradiction(_missing(wanted, seen))
    window = seen.windows[name]
    if window is None:
        raise Contradiction(
            EngineProblem(
                UNTOLD,
                f"The engine does not tell the context window of {name} (max_model_len at /v1/models).",
                f"Describe {name} in the catalogue: SLACKWATER_MODELS_FILE.",
            )
        )
    return adopted(name, window, task)


def _missing(wanted: str | None, seen: Sighting) -> EngineProblem:
    if wanted is None:
        fix = "Name the model, which the catalogue must describe: SLACKWATER_ENGINE_MODEL."
        return EngineProblem(MISSING, "The engine does not say what it serves.", fix)
    served = ", ".join(seen.names) or "no model that it names"
    other = f", or set SLACKWATER_ENGINE_MODEL={seen.names[0]}" if seen.names else ""
    return EngineProblem(
        MISSING,
        f"The engine serves {served}, not {wanted}.",
        f"Start it with --served-model-name {wanted}{other}.",
    )


def _fetches_anything(config: object) -> bool:
    """Whether that is vLLM's configuration of a multimodal model for which no media domain is named."""
    return _inside(config, "multimodal_config") is not None and not _inside(config, "allowed_media_domains")


def _inside(value: object, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
