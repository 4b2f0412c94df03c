"""The figures about engines in one object: versions of vLLM, attached engines, the door, outside clients, the price, a GPU.

    python -m benchmarks.engines --json [--keep FOLDER] [--only PART[,PART…]]

versions   what `make engines` found: `.engines/report.json` with `versions_supported` and `versions_failed`
attached   python -m benchmarks.colocation attached
first      python -m benchmarks.colocation first
door       python -m benchmarks.door
agree      python -m benchmarks.colocation agree
frontier   python -m benchmarks.colocation simulate --frontier
gpu        what `deploy/gpu-check.sh` found: gpu-check/result.json

Parts run one after the other, since they share the machine. With --keep, the result of each part is a file of the folder, and
a part that has one does not run again. A figure that does not exist is null, and `not_run` has the reason. The last line of
stdout is one JSON object.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.colocation.block_store import write_whole
from benchmarks.colocation.track_first import ENGINES, ROUTES
from benchmarks.harness import say

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 3600.0


@dataclass(frozen=True)
class Part:
    """Where the figures `keys` come from: the last line of a `module`, or a `file`."""

    name: str
    keys: tuple[str, ...]
    module: tuple[str, ...] = ()
    file: Path | None = None


PARTS = (
    Part("versions", ("versions_supported", "versions_failed"), file=ROOT / ".engines" / "report.json"),
    Part("attached", ("attached_l2_harvest_ratio",), module=("benchmarks.colocation", "attached", "--json")),
    Part(
        "first",
        tuple(f"first_{engine}_{route}_x" for engine in ENGINES for route in ROUTES),
        module=("benchmarks.colocation", "first", "--json"),
    ),
    Part("door", ("door_added_ttft_p50_ms", "door_added_ttft_p99_ms"), module=("benchmarks.door", "--json")),
    Part("agree", ("outside_client_agreement",), module=("benchmarks.colocation", "agree", "--json")),
    Part("frontier", ("frontier",), module=("benchmarks.colocation", "simulate", "--frontier", "--json")),
    Part("gpu", ("gpu",), file=ROOT / "gpu-check" / "result.json"),
)


class NotRunError(RuntimeError):
    """A part has no figures; the message says why."""


def found(part: Part, keep: Path | None, *, quick: bool = False) -> dict[str, Any]:
    """The result of a part: kept, read or measured now. Raises NotRunError."""
    kept = keep / f"{part.name}.json" if keep else None
    if kept and kept.exists():
        return last_object(kept.read_text())
    if part.file:
        if not part.file.exists():
            raise NotRunError(f"{part.file.relative_to(ROOT)} does not exist")
        return last_object(part.file.read_text())
    result = _measured(part, ["--quick"] if quick else [])
    if kept and not result.get("not_run"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(result) + "\n")
    return result


def _measured(part: Part, flags: Sequence[str]) -> dict[str, Any]:
    if find_spec(part.module[0]) is None:
        raise NotRunError(f"{part.module[0]} does not exist")
    command = [sys.executable, "-m", *part.module, *flags]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotRunError(f"{' '.join(part.module)} took longer than {LIMIT_SECONDS:.0f} s") from error
    if done.returncode:
        raise NotRunError(f"{' '.join(part.module)} ended with exit code {done.returncode}")
    return last_object(done.stdout)


def last_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is, or that its last line is. Raises NotRunError."""
    for candidate in (text, text.strip().rpartition("\n")[2]):
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    raise NotRunError("it printed no JSON object")


def gpu_table(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The table of a run on a GPU; None if it ran on none."""
    if not result.get("gpu"):
        return None
    names = ("gpu", "vllm_version", "client", "client_version", "knee", "notes", "arms", "verdict", "step_times")
    return {name: result.get(name) for name in names}


def gathered(wanted: Collection[str], keep: Path | None, *, quick: bool = False) -> dict[str, Any]:
    """Every figure, and the reason for each that is missing."""
    figures: dict[str, Any] = {}
    not_run: dict[str, str] = {}
    for part in PARTS:
        figures |= dict.fromkeys(part.keys)
        if part.name not in wanted:
            not_run[part.name] = "left out"
            continue
        say(f"{part.name} …")
        try:
            result = found(part, keep, quick=quick)
        except NotRunError as error:
            not_run[part.name] = str(error)
            continue
        values = {"gpu": gpu_table(result)} if part.name == "gpu" else {key: result.get(key) for key in part.keys}
        figures |= values
        if all(value is None for value in values.values()):
            not_run[part.name] = str(result.get("not_run") or "its result has no such figure")
    return {**figures, "not_run": not_run}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Gather. With --quick, without what co-location measures on real engines, which has quick forms of its own."""
    wanted = [
        name for name in options.arms if not options.quick or name not in ("attached", "first", "agree", "frontier")
    ]
    return gathered(wanted, options.keep, quick=options.quick)


def flags(parser: argparse.ArgumentParser) -> None:
    """What only this benchmark has."""
    parser.add_argument("--keep", type=Path, help="folder of finished parts; a later run continues from them")


if __name__ == "__main__":
    command.main("engines", __doc__, run, minutes=60, arms=[part.name for part in PARTS], flags=flags)
