"""The metrics of an API that runs in several processes, added up: each process writes its own to files in one folder."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from app.tracing.recorder import SpanCounts

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
_PREFIX = "slackwater-metrics-"


@contextmanager
def shared() -> Iterator[None]:
    """Within, the processes that are started share a folder for their metrics. Those that killed APIs left are removed first."""
    _remove_left()
    with _locked_folder() as folder:
        os.environ[_FOLDER] = folder
        yield


@contextmanager
def _locked_folder() -> Iterator[str]:
    """A folder with a lock (flock), which lasts as long as this process. Again, if somebody removed it before it had the lock."""
    while True:
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, _lock(Path(folder)) as is_ours:
            if is_ours and Path(folder).exists():
                yield folder
                return


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Lock a folder, if nobody has. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(opened)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), _lock(folder) as is_ours:  # another one removes it, or it is another user's
            if is_ours:
                shutil.rmtree(folder)


def registries() -> list[CollectorRegistry]:
    """The metrics of this API: those of this process, or of all that share a folder."""
    folder, own = os.environ.get(_FOLDER), CollectorRegistry()
    if not folder:
        own.register(SpanCounts())
        return [REGISTRY, own]
    MultiProcessCollector(own, folder)  # type: ignore[no-untyped-call]  # it has the spans, too
    own.register(ProcessSums([os.getppid(), *_living(folder)]))
    return [own]


def _living(folder: str) -> list[int]:
    """The processes of the folder that run. The gauges of the others are removed; their counters stay in the sums."""
    living = []
    for pid in {int(file.stem.rpartition("_")[2]) for file in Path(folder).glob("*.db")}:
        if _is_sibling(pid):
            living.append(pid)
            continue
        with suppress(FileNotFoundError):  # another process does the same
            mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
    return living


def _is_sibling(pid: int) -> bool:
    """Whether the process lives and is one of this API's: its number may have been given to another program."""
    try:
        return os.getpgid(pid) == os.getpgrp()
    except ProcessLookupError:
        return False


class ProcessSums(Collector):
    """Memory, processor time and open files of several processes together, and the latest start of one."""

    def __init__(self, pids: list[int]) -> None:
        self._processes = [_collector(pid) for pid in pids]

    def collect(self) -> Iterable[Metric]:
        """The families of `ProcessCollector`, each with one sample."""
        families: dict[str, list[Metric]] = {}
        for process in self._processes:
            for family in process.collect():
                families.setdefault(family.name, []).append(family)
        for name, found in families.items():
            values = [family.samples[0].value for family in found]
            value = max(values) if name == "process_start_time_seconds" else sum(values)
            found[0].samples = [found[0].samples[0]._replace(value=value)]
            yield found[0]


def _collector(pid: int) -> ProcessCollector:
    return ProcessCollector(pid=lambda: pid, registry=None)
