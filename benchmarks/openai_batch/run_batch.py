"""Arm: `vllm run-batch`, killed in the middle. It has its own engine, so only its losses are compared, not its speed."""

import contextlib
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from app import processes
from app.engines import catalogue
from app.settings import Settings
from benchmarks import harness
from benchmarks.harness import MODEL, say
from benchmarks.openai_batch import lines
from workers.gpu.managed_engine import vllm_environment

COUNT, TOKENS, SHARE = 160, 64, 0.25
PATIENCE_SECONDS = 400.0
_BAR = re.compile(rb"Running batch:.*\| (\d+)/(\d+) ")


@dataclass(frozen=True)
class KilledRun:
    """The answers of a killed run, and how many of them are on disk."""

    answered: int
    on_disk: int
    seconds: float


def killed(folder: Path) -> dict[str, Any]:
    """Figures of one run, or a note if the model weights are not on this machine."""
    settings = Settings()
    if not (settings.data_dir / "models" / MODEL / "config.json").exists():
        return {"runbatch_lost": None, "notes": ["run-batch needs the model: `slackwater model prepare`"]}
    folder.mkdir(parents=True, exist_ok=True)
    content = lines.write(folder / "run_batch.jsonl", COUNT, 400, tokens=TOKENS)
    left = _run(settings, content, folder)
    say(f"run-batch: killed after {left.answered} of {COUNT} answers, {left.on_disk} of them on disk")
    return {
        "runbatch_requests": COUNT,
        "runbatch_answered_at_kill": left.answered,
        "runbatch_on_disk": left.on_disk,
        "runbatch_lost": left.answered - left.on_disk,
        "runbatch_version": f"vllm {_version()}",
        "notes": [
            "run-batch cannot use a running engine, so its throughput is not compared. It was killed with "
            f"{MODEL} on vLLM for CPU. Answers are counted by its progress bar; those without a line on disk are lost. "
            "The whole file has to run again to get them back.",
        ],
    }


def _run(settings: Settings, content: Path, folder: Path) -> KilledRun:
    model = catalogue.load(settings.models_file).resolve(MODEL)
    assert model is not None
    made, log = folder / "run_batch_output.jsonl", folder / "run_batch.log"
    # The `vllm` command needs a wheel named vllm. This is the module that it runs.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.run_batch", "-i", str(content), "-o", str(made)]
    arguments = model.engine_arguments(settings.data_dir, processes.cpu_dtype())
    began = monotonic()
    process = harness.start([*command, *_without_worker(arguments)], vllm_environment(model), log)
    try:
        answered = _until(process, log)
    finally:
        processes.signal_group(process.pid, signal.SIGKILL)
        process.wait()
    on_disk = 0
    with contextlib.suppress(FileNotFoundError):
        on_disk = len(lines.answered([made.read_bytes()]))
    return KilledRun(answered, on_disk, monotonic() - began)


def _version() -> str:
    import vllm  # slow to import, and only needed here

    return str(vllm.__version__)


def _without_worker(arguments: list[str]) -> list[str]:
    """The arguments without our extension of vLLM's worker."""
    if "--worker-extension-cls" not in arguments:
        return arguments
    place = arguments.index("--worker-extension-cls")
    return arguments[:place] + arguments[place + 2 :]


def _until(process: subprocess.Popen[bytes], log: Path) -> int:
    """The number of answered requests on the progress bar, once it is at least `SHARE` of all."""
    deadline = monotonic() + PATIENCE_SECONDS
    while monotonic() < deadline and process.poll() is None:
        seen = [int(found[1]) for found in _BAR.finditer(log.read_bytes())]
        if seen and seen[-1] >= SHARE * COUNT:
            return seen[-1]
        sleep(0.1)
    raise SystemExit(
        f"run-batch did not answer a quarter of the file within {PATIENCE_SECONDS:.0f} s:\n{log.read_text()[-2000:]}"
    )
