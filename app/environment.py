"""The environment variables of our processes: which of ours nothing reads, and what a process that we start gets."""

import difflib
import os
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from app.settings import PREFIX, Settings
from workers.engine.door.settings import VARIABLES as DOOR_VARIABLES

# Variables of ours that are no settings: commands on another machine read the first two, and the door of an engine the others.
_READ_ELSEWHERE = ("URL", "API_KEY", *(name.removeprefix(PREFIX) for name in DOOR_VARIABLES))
# What options of `up` and parts are called, where the setting is called otherwise and another one is more similar.
_MEANT = {
    "ATTACH": "ENGINE_URL",
    "MODEL": "ENGINE_MODEL",
    "SLOTS": "ENGINE_SLOTS",
    "API_PORT": "PORT",
    "API_HOST": "HOST",
}


def mistyped() -> dict[str, str | None]:
    """Variables `SLACKWATER_…` of the environment that nothing reads, each with the most similar one that exists, if any is."""
    known = [*map(str.upper, Settings.model_fields), *_READ_ELSEWHERE]
    written = [name for name in os.environ if name.upper().startswith(PREFIX)]
    unknown = [name for name in sorted(written) if name.upper().removeprefix(PREFIX) not in known]
    return {name: _nearest(name.upper().removeprefix(PREFIX), known) for name in unknown}


def _nearest(name: str, known: Sequence[str]) -> str | None:
    found = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, known, n=1)
    return f"{PREFIX}{found[0]}" if found else None


PART = "SLACKWATER_PART"  # names the part, in processes that `up` starts

# Log lines at once; and process titles (Celery and vLLM set theirs) must not overwrite the marks that we find processes by.
PROCESS_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "SPT_NOENV": "1"}


def foreign_environment() -> dict[str, str]:
    """The environment for a program that is not ours: what we inherited, without our settings and their secrets."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return inherited | PROCESS_ENVIRONMENT


def is_supervised() -> bool:
    """Whether `up` has started this process."""
    return PART in os.environ


def visible_gpus() -> str | None:
    """The GPUs that CUDA is told to use in this process and in its engine: indexes or UUIDs, by commas; None: all."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def child_environment(settings: Settings, overrides: Mapping[str, str]) -> dict[str, str]:
    """The environment for a part of ours: what we inherited, with every setting that was given here. Defaults are its own,
    so that it can tell what was given from what was not.
    """
    values: dict[str, str] = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        values[f"{PREFIX}{name.upper()}"] = str(plain)
    return {**os.environ, **PROCESS_ENVIRONMENT, **values, **overrides}
