"""The fix of vLLM's CPU runner, on a substitute that fails as the real one does. The demo batch runs the real one."""

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.needs import module

pytestmark = pytest.mark.slow

torch = module("torch")
numpy = module("numpy")


class Runner:
    """vLLM's bookkeeping as far as seeds are concerned."""

    def __init__(self, discard: list[bool]) -> None:
        generators = {row: torch.Generator().manual_seed(row) for row in range(len(discard))}
        self.input_batch = SimpleNamespace(num_reqs=len(discard), generators=generators)
        self.discard_request_mask = SimpleNamespace(np=numpy.array(discard))

    def _bookkeeping_sync(self, step: str) -> str:
        for row in self.discard_request_mask.np.nonzero()[0]:
            generator = self.input_batch.generators.get(int(row))
            if generator is not None:
                generator.set_offset(generator.get_offset() - 4)
        return step


@pytest.fixture
def runner_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fresh stand-in, mended by loading the module."""
    stand_in: Any = ModuleType("vllm.v1.worker.cpu_model_runner")
    stand_in.CPUModelRunner = type("CPUModelRunner", (Runner,), {})
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.cpu_model_runner", stand_in)
    monkeypatch.delitem(sys.modules, "app.engines.cpu_seeds", raising=False)
    import_module("app.engines.cpu_seeds")
    yield stand_in.CPUModelRunner
    sys.modules.pop("app.engines.cpu_seeds", None)


def test_the_stand_in_breaks_as_vllm_does() -> None:
    with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
        Runner([True])._bookkeeping_sync("step")


def test_discarded_samples_turn_the_seed_back_and_others_go_on(runner_class: Any) -> None:
    runner = runner_class([True, False])
    generators = runner.input_batch.generators
    first = [torch.rand(3, generator=generators[row]) for row in (0, 1)]
    assert runner._bookkeeping_sync("step") == "step"
    second = [torch.rand(3, generator=generators[row]) for row in (0, 1)]
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
