"""GPU telemetry: of a real GPU where there is one, of a stand-in for the driver everywhere."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.headroom.gpu import Gpu, GpuProbe, memory_signal
from tests.needs import unable


class Driver:
    """Stands for NVML: GPUs by index with what each refuses to tell."""

    def __init__(self, *uuids: str) -> None:
        self.uuids = list(uuids)
        self.opened = 0
        self.lost: set[int] = set()
        self.silent: set[str] = set()

    def nvmlInit(self) -> None:
        self.opened += 1
        if not self.uuids:
            raise OSError("no driver")

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self._answer(name.removeprefix("nvmlDeviceGet"), *given)

    def _answer(self, what: str, *given: Any) -> Any:
        if what in self.silent or (given and given[0] in self.lost):
            raise RuntimeError("not supported")
        answers: dict[str, Any] = {
            "Count": len(self.uuids),
            "HandleByIndex": given[0] if given else None,
            "HandleByUUID": 0,
            "UUID": self.uuids[given[0]] if given and isinstance(given[0], int) else "",
            "Name": b"NVIDIA H200",
            "MemoryInfo": SimpleNamespace(used=30, total=120),
            "UtilizationRates": SimpleNamespace(gpu=87),
            "PowerUsage": 412_500,
        }
        return answers[what]


def test_a_machine_without_a_driver_has_no_gpus_and_is_asked_only_once() -> None:
    driver = Driver()
    probe = GpuProbe(None, driver)
    assert probe.read() == probe.read() == ()
    assert driver.opened == 1


def test_the_real_library_answers_without_raising() -> None:
    gpus = GpuProbe(None).read()
    if not gpus:
        unable("no GPU")
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-")
        assert 0 < gpu.memory_used <= gpu.memory_total
        assert gpu.utilization is None or 0 <= gpu.utilization <= 1
        assert gpu.power_watts is None or gpu.power_watts > 0


def test_units_are_shares_bytes_and_watts() -> None:
    [gpu] = GpuProbe(None, Driver("GPU-a")).read()
    assert gpu == Gpu("GPU-a", "NVIDIA H200", 0.87, 30, 120, 412.5)
    assert gpu.memory_usage == 0.25


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-c"]),
        ("2,0", ["GPU-c", "GPU-aa"]),
        ("GPU-ab", ["GPU-ab"]),
        ("GPU-a", ["GPU-aa"]),
        ("1, 7, 0", ["GPU-ab"]),
        ("", []),
        ("-1", []),
        ("MIG-x", ["GPU-aa"]),
    ],
)
def test_only_the_gpus_that_cuda_would_see_are_read(visible: str | None, expected: list[str]) -> None:
    assert [gpu.uuid for gpu in GpuProbe(visible, Driver("GPU-aa", "GPU-ab", "GPU-c")).read()] == expected


def test_what_a_gpu_does_not_tell_is_unknown_and_a_lost_one_leaves_the_others() -> None:
    driver = Driver("GPU-a", "GPU-b")
    driver.silent = {"UtilizationRates", "PowerUsage"}
    probe = GpuProbe(None, driver)
    assert [(gpu.utilization, gpu.power_watts) for gpu in probe.read()] == [(None, None)] * 2
    driver.lost = {0}
    assert [gpu.uuid for gpu in probe.read()] == ["GPU-b"]
    driver.lost = set()
    assert len(probe.read()) == 2


def test_memory_is_a_signal_only_above_its_ceiling_and_of_the_fullest_gpu() -> None:
    gpus = [Gpu("GPU-a", "x", None, used, 100, None) for used in (50, 98)]
    assert memory_signal(gpus, 0.97) == ("gpu_memory_usage", 0.98, 0.97)
    assert memory_signal(gpus, 0.98) is None
    assert memory_signal([], 0.0) is None
