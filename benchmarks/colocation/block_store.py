"""A folder with the finished blocks of a long run, so that a stopped run can be continued."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call


@dataclass(frozen=True)
class Block:
    """The result of one arm on one list of arrivals. `idle`: the share of time without a synchronous request."""

    outcome: RunSamples
    calls: list[Call]
    idle: float


class BlockStore:
    """A folder of blocks of one machine and one set of options. Without a folder, nothing is stored."""

    def __init__(self, folder: Path | None, same: Mapping[str, Any]) -> None:
        self._folder = folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        head = folder / "same.json"
        if head.exists() and json.loads(head.read_text()) != dict(same):
            raise SystemExit(f"{folder} has blocks of another machine or of other options; choose another folder")
        write_whole(head, json.dumps(dict(same)))

    def has(self, arm: str, workload: str, seed: int) -> bool:
        """Whether the block is stored."""
        return self._folder is not None and self._file(arm, workload, seed).exists()

    def load(self, arm: str, workload: str, seed: int) -> Block:
        """Read a stored block."""
        found = json.loads(self._file(arm, workload, seed).read_text())
        values: dict[str, Any] = {
            field.name: np.array(value) if isinstance(value := found["outcome"][field.name], list) else value
            for field in fields(RunSamples)
        }
        return Block(RunSamples(**values), [Call(**call) for call in found["calls"]], found["idle"])

    def store(self, arm: str, workload: str, seed: int, block: Block) -> None:
        """Write a block atomically."""
        if self._folder is None:
            return
        values = {field.name: getattr(block.outcome, field.name) for field in fields(RunSamples)}
        outcome = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        written = json.dumps({"outcome": outcome, "calls": [asdict(call) for call in block.calls], "idle": block.idle})
        write_whole(self._file(arm, workload, seed), written)

    def _file(self, arm: str, workload: str, seed: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{arm}.{workload}.{seed}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all, even if the process is killed meanwhile."""
    half = path.with_name(f"{path.name}.half")
    half.write_text(text)
    half.rename(path)
