"""`python -m tests.twice ARGUMENTS` runs pytest with these arguments, and then each failed test a second time.

CI machines sometimes stop for seconds (one disk did for nine), and real processes with real deadlines then fail. Both outcomes
are printed. A test that passes only the second time is named: "flaky: …". Add that name to tests/flaky.txt by hand. A listed
test is not run a second time, so that it has to be corrected.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

FAILED = 1  # pytest's exit code for failed tests; others are about the whole run
CALM_SECONDS = 30.0
KNOWN = Path(__file__).with_name("flaky.txt")


def main(arguments: list[str], known: Path = KNOWN, calm_seconds: float = CALM_SECONDS) -> int:
    """Run both tries. Returns the exit code."""
    code = _pytest("--cache-clear", *arguments)
    if code != FAILED:
        return code
    first = _failed()
    if hopeless := first & _names(known):
        return _say(f"known to be flaky, not tried again: mend it and take it off {known.name}", hopeless)
    print(f"running once more, by itself, what failed: {len(first)} tests", flush=True)
    time.sleep(calm_seconds)
    code = _pytest("--last-failed", "--last-failed-no-failures", "none")
    _say("flaky", first - _failed())
    return code


def _pytest(*arguments: str) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *arguments])


def _failed() -> set[str]:
    """The tests that failed in the last run, from pytest's cache."""
    remembered = Path(".pytest_cache/v/cache/lastfailed")
    return set(json.loads(remembered.read_text())) if remembered.exists() else set()


def _names(known: Path) -> set[str]:
    lines = (line.strip() for line in known.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def _say(what: str, tests: set[str]) -> int:
    for test in sorted(tests):
        print(f"{what}: {test}", flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
