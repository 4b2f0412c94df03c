"""The state of the GPUs of a worker's engine, read with NVML. It is shown and logged, and never closes the gate.

Utilisation is the share of time in which any kernel ran. An engine with room for ten times the work can show 90 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Gpu:
    """The state of one GPU: shares of one, bytes, watts. None: the GPU does not report it (a MIG slice has no utilisation)."""

    uuid: str
    name: str
    utilization: float | None
    memory_used: int
    memory_total: int
    power_watts: float | None

    @property
    def memory_usage(self) -> float:
        """The share of its memory that is in use by all processes."""
        return self.memory_used / self.memory_total if self.memory_total else 0.0


def memory_signal(gpus: Sequence[Gpu], ceiling: float) -> tuple[str, float, float] | None:
    """Signal, value and threshold if the fullest GPU's memory is above `ceiling`, a share of one; else None."""
    fullest = max((gpu.memory_usage for gpu in gpus), default=0.0)
    return ("gpu_memory_usage", fullest, ceiling) if fullest > ceiling else None


class GpuProbe:
    """Reads the GPUs that `visible` names (see `app.environment.visible_gpus`). Without a GPU it does not try again."""

    def __init__(self, visible: str | None, nvml: Any = None) -> None:
        self._visible = visible
        self._nvml = nvml
        self._handles: list[Any] | None = None

    def read(self) -> tuple[Gpu, ...]:
        """The GPUs now; empty without a GPU. Never raises. It takes some milliseconds, so call it in a thread."""
        try:
            if self._handles is None:
                self._handles = self._open()
            found = (_attempt(partial(self._look, handle)) for handle in self._handles)
            return tuple(gpu for gpu in found if gpu is not None)
        except Exception as error:  # a driver may raise anything
            log.debug("gpu.none", error=str(error) or type(error).__name__)
            self._handles = []
            return ()

    def _open(self) -> list[Any]:
        if self._nvml is None:
            import pynvml

            self._nvml = pynvml
        self._nvml.nvmlInit()
        every = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())]
        if self._visible is None:
            return every
        uuids = [_text(self._nvml.nvmlDeviceGetUUID(handle)) for handle in every]
        handles: list[Any] = []
        for name in filter(None, (part.strip() for part in self._visible.split(","))):
            handle = self._named(name, every, uuids)
            if handle is None:  # CUDA also stops at the first unknown name
                break
            handles.append(handle)
        return handles

    def _named(self, name: str, every: list[Any], uuids: list[str]) -> Any:
        if name.isdecimal():
            return every[int(name)] if int(name) < len(every) else None
        if name.startswith("MIG-"):
            return _attempt(lambda: self._nvml.nvmlDeviceGetHandleByUUID(name.encode()))
        return next((handle for handle, uuid in zip(every, uuids, strict=True) if uuid.startswith(name)), None)

    def _look(self, handle: Any) -> Gpu:
        nvml = self._nvml
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        percent = _attempt(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        milliwatts = _attempt(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return Gpu(
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            utilization=None if percent is None else percent / 100,
            memory_used=int(memory.used),
            memory_total=int(memory.total),
            power_watts=None if milliwatts is None else milliwatts / 1000,
        )


def _attempt(call: Callable[[], Any]) -> Any:
    """The result of the call; None if the driver refuses it."""
    try:
        return call()
    except Exception:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
