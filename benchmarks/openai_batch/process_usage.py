"""Memory and CPU time of a measured process, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self


@dataclass
class ProcessUsage:
    """A context manager around the measured work: duration, CPU time, and the largest growth of resident memory."""

    pid: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    growth_mb: float = 0.0
    own_cpu_seconds: float = 0.0  # of the measuring process, because it shares the machine

    def __enter__(self) -> Self:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # resets the peak
        self._memory, self._cpu, self._own = self._memory_mb("VmRSS"), self._cpu_now(), sum(os.times()[:2])
        self._began = monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.seconds = monotonic() - self._began
        if kind is None:
            self.cpu_seconds = self._cpu_now() - self._cpu
            self.own_cpu_seconds = sum(os.times()[:2]) - self._own
            self.growth_mb = self._memory_mb("VmHWM") - self._memory

    def _memory_mb(self, row: str) -> float:
        rows = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(rows[row].split()[0]) / 1024

    def _cpu_now(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
