"""A bare scheduler on a simulated clock. A fixed formula gives the duration of a step."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from testing.bare_scheduler import BATCH, SYNC, AsyncScheduler, build, finish_step, request
from tests.harvest.commands import COMMANDS
from workers.engine.control_page import Commands
from workers.engine.scheduler import HarvestScheduler, SyncHarvestScheduler

BOTH = (SyncHarvestScheduler, HarvestScheduler)


class Bench:
    """One scheduler, driven step by step. With asynchronous scheduling, one step stays in flight."""

    def __init__(self, cls: Any, commands: Commands | None = COMMANDS, **engine: Any) -> None:
        self.scheduler = build(cls, **engine)
        self.now = 0.0
        if hasattr(self.scheduler, "commands"):
            self.scheduler.commands = commands
            self.scheduler.clock = lambda: self.now
            self.scheduler.nap = lambda seconds: None
        self.flight: deque[Any] = deque()
        self.depth = 2 if issubclass(cls, AsyncScheduler) else 1
        self.tokens: dict[str, int] = {}
        self.seconds = 0.0
        self.added = 0

    def add(self, rid: str, prompt: int | Sequence[int], output: int, priority: int, **fields: Any) -> Any:
        self.added += 1
        hashed = self.scheduler.cache_config.enable_prefix_caching
        made = request(rid, prompt, output, priority, float(self.added), prefix_cache=hashed, **fields)
        self.scheduler.add_request(made)
        return made

    def step(self) -> dict[str, int]:
        """Schedule one step and finish the oldest in flight. Returns the scheduled tokens by id."""
        out = self.scheduler.schedule()
        self.flight.append(out)
        if len(self.flight) == self.depth:
            done = self.flight.popleft()
            context = sum(done.scheduled_cached_reqs.num_computed_tokens)
            self.seconds = 9e-3 + 32e-6 * done.total_num_scheduled_tokens + 52e-9 * context
            self.now += self.seconds
            for rid in finish_step(self.scheduler, done):
                self.tokens[rid] = self.tokens.get(rid, 0) + 1
        return dict(out.num_scheduled_tokens)

    def steps_until(self, rid: str, limit: int = 2000) -> int:
        """How many steps are scheduled before the one that has `rid`."""
        return next((n for n in range(limit) if rid in self.step()), limit)

    def learnt(self, steps: int = 120) -> "Bench":
        """Train the step model with steps of many kinds."""
        for k in range(steps):
            if k % 3 == 0:
                self.add(f"lesson{k}", 40 + 37 * k % 900, 4 + k % 9, SYNC)
            self.step()
        while self.scheduler.has_unfinished_requests():
            self.step()
        return self

    def crowd(self, count: int, prompt: int = 100, output: int = 300, steps: int = 8) -> list[Any]:
        """Fill the engine with batch requests and let them run."""
        made = [self.add(f"b{i}", prompt, output, BATCH) for i in range(count)]
        for _ in range(steps):
            self.step()
        return made

    def finish(self, limit: int = 3000) -> None:
        """Step until nothing is left. Raises AssertionError after `limit` steps."""
        for _ in range(limit):
            if not self.scheduler.has_unfinished_requests():
                return
            self.step()
        raise AssertionError(f"unfinished: {list(self.scheduler.requests)}")
