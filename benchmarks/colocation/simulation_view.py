"""What an arm's worker sees of a simulated run, and the conditions of that run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.colocation.simulated_engine import SimulatedEngine, SimulatedRequest
from benchmarks.colocation.workloads import Workload


@dataclass(frozen=True, slots=True)
class Conditions:
    """What an ablation breaks or leaves out. Times are in seconds.

    `frozen`: /metrics repeats the same values in the second half of the run. `crowded`: batch requests take every slot
    of the engine, even those that its scheduler cannot use. `settings`: names and values, for L2.
    """

    arrival_trigger: bool = True
    freeze: bool = True
    model_factor: float = 1.0
    telemetry_late: float = 0.0
    frozen: bool = False
    restart: bool = False
    crowded: bool = False
    settings: tuple[tuple[str, Any], ...] = ()


class SimulationView(Protocol):
    """A simulated run, as its batch worker reads and drives it."""

    now: float
    live: dict[int, SimulatedRequest]
    up: bool
    engine: SimulatedEngine
    workload: Workload
    conditions: Conditions

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at the simulated second `when`."""

    def admit(self) -> None:
        """Send batch requests to the engine until the worker refuses one."""

    def yield_batch(self, count: int) -> None:
        """Take `count` batch requests back from the engine after its present step."""
