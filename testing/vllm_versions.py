"""What L2 relies on, checked in every supported version of vLLM; the table of versions in docs/attach.md is made from it.

    make engines                                      build the environments that are missing, and check them all
    python -m testing.vllm_versions [VERSION …]    check those again; the others keep their results

facts        what the scheduler relies on, and how it works: tests/harvest/test_canaries.py, test_scheduler.py
features     LoRA, structured output, images and others: test_features.py, test_transfers.py
decisions    a recorded trace, decided in the same way: test_decisions.py
real batch   a real engine with batch and synchronous requests, and the entry point of the plug-in: test_real_engine.py,
             test_plugin.py

Each check is a run of pytest by the version's own interpreter in `.engines/VERSION` (deploy/engines.sh). The results are
`.engines/report.json`: one JSON object, whose `versions_supported` are those that passed all checks they can run.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from workers.engine.vllm_versions import SUPPORTED

ROOT = Path(__file__).parent.parent
ENGINES = ROOT / ".engines"
REPORT = ENGINES / "report.json"
PAGE = ROOT / "docs" / "attach.md"
CHECKS = {
    "facts": ("test_canaries.py", "test_scheduler.py"),
    "features": ("test_features.py", "test_transfers.py"),
    "decisions": ("test_decisions.py",),
    "real batch": ("test_real_engine.py", "test_plugin.py"),
}
LIMIT_SECONDS = 900
_TABLE = re.compile(r"(?<=<!-- made by `make engines` -->\n).*?(?=<!-- end -->)", re.DOTALL)


def check(version: str) -> dict[str, str]:
    """The result of each check: `N passed`, `not run: reason`, or `failed: …`."""
    folder = ENGINES / version
    if not (folder / "built").exists():
        return dict.fromkeys(CHECKS, "not run: no environment")
    checks = dict(CHECKS)
    real, reason = checks.pop("real batch"), folder / "scheduler_only"
    results = _tested(folder, checks)
    if reason.exists():
        results["real batch"] = f"not run: {reason.read_text().strip()}"
    else:
        results |= _tested(folder, {"real batch": real})
    sys.stderr.write(f"vLLM {version}: {results}\n")
    return results


def _tested(folder: Path, checks: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Run the files of the checks in one pytest, because vLLM takes long to import."""
    command = [str(folder / "bin" / "python"), "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-n", "0"]
    command += [f"tests/harvest/{file}" for files in checks.values() for file in files]
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    try:
        subprocess.run(
            [*command, f"--junitxml={report}"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(checks, f"failed: no end after {LIMIT_SECONDS} s")
    if not report.exists():
        return dict.fromkeys(checks, "failed: pytest did not run")
    cases = list(ElementTree.parse(report).iter("testcase"))
    return {name: _result([case for case in cases if _file(case) in files]) for name, files in checks.items()}


def _file(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2] or case.get('name', '').rpartition('.')[2]}.py"


def _result(cases: list[ElementTree.Element]) -> str:
    passed = 0
    for case in cases:
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                said = " ".join(found.get("message", "").split())[:200].replace("|", "/")
                return f"failed: {case.get('name')}: {said}"
        passed += case.find("skipped") is None
    return f"{passed} passed" if passed else "failed: no test ran"


def summary(results: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The report of all results. A version that has no result of its facts is neither supported nor failed."""
    checked = {v: r for v, r in results.items() if not r["facts"].startswith("not run")}
    failed = [v for v, r in checked.items() if any(result.startswith("failed") for result in r.values())]
    return {
        "versions_supported": [v for v in checked if v not in failed],
        "versions_failed": failed,
        "not_run": {v: r["real batch"] for v, r in checked.items() if r["real batch"].startswith("not run")},
        "results": results,
    }


def table(results: dict[str, dict[str, str]]) -> str:
    """The table of the documents."""
    lines = ["| vLLM | " + " | ".join(CHECKS) + " |", "|---" * (1 + len(CHECKS)) + "|"]
    lines += [
        f"| {version} | " + " | ".join(result[name] for name in CHECKS) + " |" for version, result in results.items()
    ]
    return "\n".join(lines)


def main() -> int:
    """Check, write the report and the table, and print the report. Exit code 1 if a version failed."""
    parser = argparse.ArgumentParser(prog="python -m testing.vllm_versions")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="default: all")
    chosen = parser.parse_args().versions or list(SUPPORTED)
    known = json.loads(REPORT.read_text())["results"] if REPORT.exists() else {}
    for version in chosen:
        known[version] = check(version)
        ordered = {v: known[v] for v in SUPPORTED if v in known}
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(json.dumps(summary(ordered)) + "\n")
        made = table(ordered) + "\n"
        PAGE.write_text(_TABLE.sub(lambda _: made, PAGE.read_text()))  # noqa: B023  # called at once
    print(REPORT.read_text(), end="")
    return bool(json.loads(REPORT.read_text())["versions_failed"])


if __name__ == "__main__":
    raise SystemExit(main())
