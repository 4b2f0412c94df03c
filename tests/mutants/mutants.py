"""Faults that are put into the code on purpose, one at a time, to see that the tests which a promise names notice them.

    python -m tests.mutants            list them: promise, fault, what a user would suffer, the tests that must fail
    python -m tests.mutants WORD …     run those whose name has one of the words, or `all`

`mutants.toml` holds them. Each replaces one passage of one file in a copy of the tree.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("mutants.toml")
_LINKED = (".venv", ".tools")
_MINUTES = 5
FAILED = 1  # pytest's exit code when tests have failed


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: `old`, which is once in `file`, becomes `new`. `tests`: of which at least one must fail; `promise` names them."""

    name: str
    promise: int
    file: str
    old: str
    new: str
    suffers: str
    tests: tuple[str, ...]

    def problem(self) -> str | None:
        """Why it cannot be put in, and what to do."""
        text = (ROOT / self.file).read_text() if (ROOT / self.file).exists() else ""
        if (found := text.count(self.old)) == 1:
            return None
        return (
            f"`old` of the mutant {self.name!r} is {found} times in {self.file}, and has to be there once. The code has moved: "
            f"write the same fault for the code as it is now ({self.suffers})."
        )


@cache
def mutants() -> dict[str, Mutant]:
    """All of them by name."""
    found = tomllib.loads(FILE.read_text())
    return {name: Mutant(name, **{**given, "tests": tuple(given["tests"])}) for name, given in found.items()}


@cache
def promises() -> dict[int, set[str]]:
    """The tests that each promise of GUARANTEES.md names, and those that its head names for all of them."""
    head, *parts = (ROOT / "GUARANTEES.md").read_text().split("\n## ")
    return {int(n[0]): _named(part) | _named(head) for part in parts if (n := re.match(r"\d+", part))}


def _named(text: str) -> set[str]:
    path, found = "", set()
    for name in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", text):
        path = name if name.endswith(".py") else path
        found.add(name if name == path else f"{path}::{name}")
    return found


@contextmanager
def copy(folder: Path) -> Iterator[Path]:
    """A copy of the tree in a new folder."""
    files = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).splitlines()
    for file in filter(lambda each: (ROOT / each).is_file(), files):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, folder / file)
    for name in filter(lambda each: (ROOT / each).exists(), _LINKED):
        (folder / name).symlink_to(ROOT / name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mutated(folder: Path, mutant: Mutant) -> Iterator[None]:
    """The fault is in the copy."""
    target, original = folder / mutant.file, ROOT / mutant.file
    target.write_text(original.read_text().replace(mutant.old, mutant.new))
    try:
        yield
    finally:
        shutil.copy2(original, target)


def run(folder: Path, mutant: Mutant) -> tuple[bool, float, str]:
    """Whether its tests see the fault, the seconds, and what they printed. Raises ValueError: it cannot be put in."""
    if problem := mutant.problem():
        raise ValueError(problem)
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "--all", *mutant.tests]
    unwanted = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")  # the copy's modules are compiled once, and the changed one again
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)} | {"PYTHONPATH": str(folder)}
    began = monotonic()
    with mutated(folder, mutant):
        try:
            ended = subprocess.run(
                command, cwd=folder, env=environment, text=True, capture_output=True, timeout=60 * _MINUTES, check=False
            )
        except subprocess.TimeoutExpired as late:
            return False, monotonic() - began, f"its tests did not end within {_MINUTES} minutes\n{late.stdout!r}"
    return ended.returncode == FAILED, monotonic() - began, ended.stdout[-3000:] + ended.stderr[-1000:]
