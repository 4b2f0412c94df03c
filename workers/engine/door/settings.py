"""The settings of a door: environment variables of the engine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

OUR_HEADER = b"x-slackwater-door"  # a worker or a gateway shows the door's token here
_TOKEN, _UNKNOWN, _BODY = "SLACKWATER_DOOR_TOKEN", "SLACKWATER_DOOR_UNKNOWN", "SLACKWATER_DOOR_BODY_MB"
_API, _WORKER, _PAGE_DIR = "SLACKWATER_DOOR_API", "SLACKWATER_DOOR_WORKER", "SLACKWATER_PAGE_DIR"
VARIABLES = (
    _TOKEN,
    _API,
    _WORKER,
    _UNKNOWN,
    _BODY,
)  # of the engine alone; the page folder is also a setting of the worker
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """What the environment says.

    `token`: shared with our worker, our gateways and the API; `NAME.hex`, made by `slackwater engine door NAME`. Without it the
    door cannot tell our requests from others, so it does nothing. `api`: the address that is asked for keys; empty: no keys are
    required. `pass_unknown`: let a key pass that was never seen, while the API does not answer. `page_dir`: the folder shared
    with the worker. `worker`: the address of the worker's port for announcements, if the API does not say it.
    `most_bytes`: of a JSON body. `engine_key`: what the engine behind the door requires as bearer token.
    `problems`: what is wrong with the variables.
    """

    token: str = ""
    api: str = ""
    pass_unknown: bool = False
    page_dir: Path | None = None
    worker: str = ""
    most_bytes: int = 256 * _MEGABYTE
    engine_key: str = ""
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """A variable with a wrong value counts as not set and is named in `problems`, because the engine must serve anyway."""
        problems = []
        unknown, megabytes = environment.get(_UNKNOWN, "refuse"), environment.get(_BODY, "256")
        token, folder = environment.get(_TOKEN, ""), environment.get(_PAGE_DIR, "")
        if unknown not in ("refuse", "pass"):
            problems.append(f"{_UNKNOWN} must be refuse or pass, not {unknown}")
        if not megabytes.isdecimal() or not int(megabytes):
            problems.append(f"{_BODY} must be a whole number above 0, not {megabytes}")
            megabytes = "256"
        if not all(token.rpartition(".")[::2]):
            problems.append(f"The door does nothing: {_TOKEN} must be what `slackwater engine door NAME` prints")
            token = ""
        return cls(
            token=token,
            api=environment.get(_API, "").rstrip("/").removesuffix("/v1"),
            pass_unknown=unknown == "pass",
            page_dir=Path(folder) if folder else None,
            worker=environment.get(_WORKER, "").rstrip("/"),
            most_bytes=int(megabytes) * _MEGABYTE,
            engine_key=environment.get("VLLM_API_KEY", ""),
            problems=tuple(problems),
        )
