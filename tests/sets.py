"""The two sets of tests, their shards, and which process runs a test.

`make test` runs what every change needs: all tests but those marked `slow`. `make test-all` (`--all`) runs every test, and more
examples of each property. `--shard 3/12` runs the third of twelve parts of that. A file that is named runs whole.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from xdist.scheduler import LoadScopeScheduling

from testing.waiting import wait_for

SLOW = "pytestmark = pytest.mark.slow"  # a file with this line is not even imported by `make test`
USUAL_SECONDS = 0.3  # of one test
# Seconds of the groups that take longest, with what they set up, in the order in which they start: of a file, or of a test by its
# parameter. Measured by `--junitxml` on two cores.
SECONDS: dict[str, float] = {
    "tests/engine/test_deaths.py": 220,
    "tests/engine/test_crashing_item.py": 210,
    "tests/benchmarks/test_quick.py[colocation attached]": 210,
    "tests/benchmarks/test_quick.py[console]": 210,
    "tests/engine/test_surface.py": 190,
    "tests/colocation/test_gpu_check.py": 185,
    "tests/engine/test_harvest_and_yield.py": 170,
    "tests/installation.py": 150,
    "tests/benchmarks/test_quick.py[colocation agree]": 155,
    "tests/benchmarks/test_quick.py[openai_batch]": 145,
    "tests/engine/test_readme.py": 125,
    "tests/engine/test_door.py": 120,
    "tests/benchmarks/test_quick.py[end_to_end]": 120,
    "tests/engine/test_attached_harvest.py": 110,
    "tests/pipelines/test_benchmark.py": 105,
    "tests/engine/test_smoke.py": 90,
    "tests/system/test_kill.py": 80,
    "tests/failover/test_failover.py": 80,
    "tests/benchmarks/test_quick.py[colocation first]": 150,
    "tests/benchmarks/test_quick.py[governance]": 70,
    "tests/crash/test_crash.py": 60,
    "tests/failover/test_restore.py": 60,
    "tests/observability/test_runbooks.py": 55,
    "tests/harvest/test_real_engine.py": 60,
    "tests/services/test_compose.py": 60,
    "tests/services/test_fault_matrix.py": 60,
    "tests/system/test_first_start.py": 60,
    "tests/system/test_freeze.py": 60,
    "tests/gateway/test_database_away.py": 50,
    "tests/soak/test_soak.py": 50,
    "tests/engine/test_bf16.py": 45,
    "tests/engine/test_embeddings.py": 45,
    "tests/walk/test_roles.py": 45,
    "tests/crash/test_next_version.py": 40,
    "tests/harvest/test_in_vllm.py": 40,
    "tests/crash/test_checker.py": 30,
    "tests/pipelines/test_trees.py": 30,
    "tests/services/test_database_roles.py": 30,
    "tests/system/test_followed_responses.py": 30,
}
# What uses the shared installation: in `make test` one process runs all of it, so that one is started.
ON_INSTALLATION = (
    "tests/clients/",
    "tests/observability/",
    "tests/cli/test_submit.py",
    "tests/console/test_every_page.py",
    "tests/examples/test_code_runner.py",
    "tests/system/test_readme_walk.py",
    "tests/walk/",
)
# By test, not by file; each takes so long.
SPREAD = {
    "tests/harvest/test_versions.py": 80,
    "tests/clients/test_versions.py": 30,
    "tests/benchmarks/test_quick.py": 30,
    "tests/walk/test_walk.py": 40,
    "tests/console/test_accessibility.py": 70,
    "tests/crash/test_seeds.py": 85,
    "tests/mutants/test_mutants.py": 7,
}
ALL = "TESTS_ALL"  # set for the processes that this one starts
STARTS = "TESTS_STARTS"  # so is the file in which each writes the tests that started an installation of their own
MOST_STARTS = 12  # in `make test`

DRAWN = int(os.environ.get("SLACKWATER_EXAMPLES", "0"))
_all = os.environ.get(ALL) == "true"


def everything() -> bool:
    """Whether `make test-all` runs."""
    return _all


def examples(few: int, many: int) -> int:
    """How many examples of a property to try: few in `make test`, many in `make test-all`, or SLACKWATER_EXAMPLES."""
    return DRAWN or (many if _all else few)


def drawn(few: int, many: int, **more: Any) -> hypothesis_settings:
    """A decorator of properties: the same examples in every run, without SLACKWATER_EXAMPLES. How many: see `examples`."""
    usual: dict[str, Any] = {
        "max_examples": examples(few, many),
        "derandomize": not DRAWN,
        "database": None,
        "deadline": None,  # a busy machine is no failure
        "print_blob": True,
        "suppress_health_check": list(HealthCheck),
    }
    return hypothesis_settings(**usual | more)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addoption(
        "--all", action="store_true", help="also the tests marked `slow`, and more examples of each property"
    )
    parser.addoption(
        "--shard", default="1/1", metavar="K/N", help="only the K-th of N parts of the tests, of equal time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest before tests are imported, in each process."""
    global _all  # noqa: PLW0603
    _all = config.getoption("all") or _all
    if _all:
        os.environ[ALL] = "true"
    if not hasattr(config, "workerinput"):
        os.environ[STARTS] = str(Path(tempfile.mkdtemp(prefix="slackwater-")) / "starts")
    hypothesis_settings.register_profile("here", drawn(20, 100))
    hypothesis_settings.load_profile("here")
    shard(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Called by pytest, in each process. The first compiles all modules; the others read what it has written."""
    process = getattr(session.config, "workerinput", {}).get("workerid", "")
    compiled = Path(os.environ[STARTS]).with_name("compiled")
    if process not in ("", "gw0"):
        wait_for(compiled.exists, "the first process has imported all tests")
    found = yield
    if process == "gw0":
        compiled.touch()
    return found


def shard(config: pytest.Config) -> tuple[int, int]:
    """Which part of how many. Raises UsageError."""
    found = re.fullmatch(r"(\d+)/(\d+)", config.getoption("shard"))
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"--shard {config.getoption('shard')}: it is K/N with K from 1 to N, for example 3/12")
    return int(found[1]), int(found[2])


def count_start() -> None:
    """A test starts an installation of its own."""
    if STARTS in os.environ:
        with Path(os.environ[STARTS]).open("a") as file:
            file.write(os.environ.get("PYTEST_CURRENT_TEST", "?").partition(" ")[0] + "\n")


def starts() -> list[str]:
    """The tests that started one, in all processes of this run."""
    file = Path(os.environ[STARTS])
    return file.read_text().splitlines() if file.exists() else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Called by pytest at the end, in each process."""
    if not hasattr(session.config, "workerinput") and _counts(session.config) and len(starts()) > MOST_STARTS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Called by pytest at the end."""
    if not (found := starts()):
        return
    terminalreporter.write_line(f"{len(found)} installations were started beside the shared ones")
    if _counts(config) and len(found) > MOST_STARTS:
        said = "; use the fixture `account`, or mark tests `slow`:"
        terminalreporter.write_line(f"FAILED: `make test` may start {MOST_STARTS}{said}", red=True)
        for test in found:
            terminalreporter.write_line(f"  {test}")


def _counts(config: pytest.Config) -> bool:
    return not _all and not _named(config)


def _named(config: pytest.Config) -> bool:
    return any(".py" in argument for argument in config.args)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether to pass over a file: all its tests are slow, and only the others are asked for."""
    if _all or _named(config) or not collection_path.name.startswith("test_"):
        return None
    return SLOW in collection_path.read_text() or None


def group(nodeid: str) -> str:
    """What one process runs in order, in one shard: a file, or one test; of `make test`, all on the shared installation."""
    file = nodeid.partition("::")[0]
    if file.startswith(ON_INSTALLATION) and not _all:
        return "tests/installation.py"
    return nodeid if file in SPREAD else file


def shards(weights: dict[str, float], count: int) -> list[set[str]]:
    """Distribute groups by their weights: the heaviest first, each to the part that has least."""
    parts: list[set[str]] = [set() for _ in range(count)]
    sums = [0.0] * count
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        least = sums.index(min(sums))
        parts[least].add(name)
        sums[least] += weights[name]
    return parts


def _seconds(name: str, count: int) -> float:
    """How long a group of so many tests takes."""
    file, _, test = name.partition("::")
    parameter = test[test.find("[") :] if "[" in test else ""
    return SECONDS.get(file + parameter) or SPREAD.get(file) or USUAL_SECONDS * count


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what this set and this shard run, what takes longest first: it would otherwise delay the end."""
    kept = [item for item in items if _all or _named(config) or not item.get_closest_marker("slow")]
    weights = {name: _seconds(name, count) for name, count in Counter(group(item.nodeid) for item in kept).items()}
    number, count = shard(config)
    part = shards(weights, count)[number - 1]
    chosen = [item for item in kept if group(item.nodeid) in part]
    chosen.sort(key=lambda item: -weights[group(item.nodeid)])
    if len(chosen) < len(items):
        taken = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = chosen


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process whole groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Groups:
    """Called by pytest-xdist."""
    return Groups(config, log)
