"""The plan of a run on a GPU: its pieces in order, what fits into the time, arrivals, and where the knee of a ramp is. Pure.

A piece is written `arm@share`: an arm, and a share of the knee in percent. `steps` and `ramp` have no share.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from benchmarks.colocation.engine_profiles import EngineProfile
from benchmarks.colocation.sync_callers import Call
from benchmarks.colocation.workloads import Arrival

STEPS, RAMP = "steps", "ramp"
ALONE, L2, L1, PRIORITY, BATCH_ONLY, CAP = "alone", "l2", "l1", "priority", "batch_only", "static_"
ARMS = (ALONE, L2, L1, PRIORITY, BATCH_ONLY, f"{CAP}N")
PLAN = "steps,ramp,alone@88,l2@88,alone@88,l2@88,priority@88,l2@60,alone@60"
INSIDE = "inside"  # the installation whose worker commands the scheduler in the engine
NUMBER_DIGITS = 7  # of the number that a prompt begins with; each digit is a token

RAMP_RANGE = 0.6, 1.3  # of the predicted knee: where a ramp begins and ends
RAMP_CALLS = 80  # at least; a slow engine gets them in a longer ramp
WINDOW_SECONDS, WINDOW_CALLS = 3.0, 10  # of a ramp, at least: each window has one p95
KNEE_X = 2.5  # the knee is where p95 of the time to the first token has grown to this multiple


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of the run. `share`: percent of the knee, 0 without callers at a rate. `cycle`: counts equal ones from 1."""

    arm: str
    share: int
    cycle: int

    @property
    def name(self) -> str:
        """As in the plan, with the cycle."""
        return f"{self.arm}@{self.share}#{self.cycle}" if self.share else f"{self.arm}#{self.cycle}"

    @property
    def installation(self) -> str:
        """Which installation of ours runs it, all on one engine."""
        return INSIDE if self.arm in (STEPS, RAMP, ALONE, L2) else self.arm


def parsed(plan: str) -> list[Piece]:
    """The pieces of a plan like `PLAN`. Raises ValueError."""
    listed: list[Piece] = []
    for text in filter(None, (each.strip() for each in plan.split(","))):
        arm, at, share = text.partition("@")
        bare = arm in (STEPS, RAMP, BATCH_ONLY)
        known = bare or arm in ARMS or (arm.startswith(CAP) and arm.removeprefix(CAP).isdecimal())
        if not known or arm == f"{CAP}N":
            raise ValueError(f"no arm {arm!r}; there are {', '.join((STEPS, RAMP, *ARMS))}")
        if bool(at) == bare or (at and not (share.isdecimal() and 0 < int(share) <= 200)):
            raise ValueError(f"{text!r}: write {f'{arm} without @' if bare else f'{arm}@88 for 88 % of the knee'}")
        piece = Piece(arm, int(share or 0), 1 + sum((p.arm, p.share) == (arm, int(share or 0)) for p in listed))
        listed.append(piece)
    return listed


def left(pieces: Sequence[Piece], done: Collection[str]) -> list[Piece]:
    """What is still to do, in order."""
    return [piece for piece in pieces if piece.name not in done]


@dataclass
class Clock:
    """Decides whether a next piece fits into the time that is left. It learns how long pieces and installations take."""

    ends: float  # monotonic seconds
    engine: float = 95.0  # seconds of the start of an engine
    installation: float = 20.0
    seconds: dict[str, float] = field(default_factory=dict)  # of a piece by its arm, warm-up and drain included

    def fits(self, now: float, arm: str, *, engine: bool = False, installation: bool = False) -> bool:
        """Whether a piece fits, after the start of an engine and of an installation if they are not up."""
        needed = self.seconds[arm] + self.engine * engine + self.installation * installation
        return now + needed <= self.ends


def poisson(rate: float, seconds: float, prompt: int, output: int, seed: str) -> list[Arrival]:
    """Arrivals at a constant rate per second, the same for the same seed. Lengths are tokens."""
    return list(_arrivals(lambda at: rate, rate, seconds, prompt, output, seed))


def ramp(low: float, high: float, seconds: float, prompt: int, output: int) -> list[Arrival]:
    """Arrivals whose rate grows by the same factor each second, from `low` to `high`."""
    return list(_arrivals(lambda at: rate_of_ramp(low, high, seconds, at), high, seconds, prompt, output, "ramp"))


def rate_of_ramp(low: float, high: float, seconds: float, at: float) -> float:
    """The rate of a ramp at a moment."""
    return low * math.pow(high / low, at / seconds)


def _arrivals(rate, most: float, seconds: float, prompt: int, output: int, seed: str) -> Iterator[Arrival]:  # type: ignore[no-untyped-def]
    """A Poisson process by thinning one of the highest rate."""
    chance, at = Random(f"arrivals {seed}"), 0.0
    words = max(1, prompt - NUMBER_DIGITS)
    while (at := at + chance.expovariate(most)) < seconds:
        if chance.random() * most < rate(at):
            yield Arrival(at, words, output)


def probes(slots: int, context: int, seconds: float) -> list[Arrival]:
    """Arrivals that show an engine's step times: few and many requests at once, short and long prompts, much and little context.

    Four requests run the whole time, so that no step begins on an idle engine. Crowds decode, and single long prompts follow.
    """
    crowds = [(count, 24, 40) for count in (8, 32, 64, 128, 256, 512) if count <= slots // 2]
    crowds += [(max(2, slots // 32), context * 3 // 4, 40), (max(2, slots // 8), context // 4, 40)]
    singles = [(1, context * share // 16, 4) for share in (1, 2, 4, 8, 12)] * 3
    groups = [*crowds[:-2], *singles, *crowds[-2:]]
    weights = [math.sqrt(count * prompt) for count, prompt, _ in groups]
    listed = [Arrival(0.0, 16, context * 3 // 8) for _ in range(4)]
    at, room = 0.5, 0.75 * seconds - 0.5  # the last group needs time to end
    for (count, prompt, output), weight in zip(groups, weights, strict=True):
        listed += [Arrival(at, max(1, prompt - NUMBER_DIGITS), output)] * count
        at += room * weight / sum(weights)
    return listed


def capacity(profile: EngineProfile, prompt: int, output: int, block: int = 16) -> float:
    """Requests per second that the engine completes when it is full, by the formula of its step times."""
    mean = prompt + output / 2
    most = min(profile.slots, int(profile.kv_blocks * block / mean))
    return max(_throughput(profile, running, prompt, output) for running in range(1, max(2, most)))


def _throughput(profile: EngineProfile, running: int, prompt: int, output: int) -> float:
    tokens = running * (1 + prompt / output)  # each step ends `running / output` requests, which others replace
    steps = max(1.0, tokens / profile.step_tokens)
    seconds = steps * profile.seconds(round(tokens / steps), round(running * (prompt + output / 2) / steps))
    return running / output / seconds


@dataclass(frozen=True, slots=True)
class Knee:
    """The rate at which callers begin to wait. Not `reached`: the ramp ended before, and `rate` is its last.

    `base_ms`: p95 of the time to the first token at the beginning of the ramp. None: calls were not answered even there, and
    `rate` is its first.
    """

    rate: float
    reached: bool
    base_ms: float | None


def knee(calls: Sequence[Call], low: float, high: float, seconds: float) -> Knee | None:
    """Where p95 of the time to the first token leaves its level for the rest of a ramp. None: too few calls.

    A request stays for a while, so the load at a moment is that of the arrivals before: the rate is taken half a stay earlier.
    An unanswered call counts as one that waited without end.
    """
    ordered = sorted(calls, key=lambda call: call.due)
    width = max(WINDOW_SECONDS, 2 * WINDOW_CALLS * seconds / max(1, len(ordered)))
    windows = [_window(ordered, float(begin), width) for begin in np.arange(0.0, seconds - width / 2, width)]
    levels = [(at, level) for at, level in windows if level is not None]
    if len(levels) < 4:
        return None
    base = float(np.median([level for _, level in levels[: max(2, len(levels) // 4)]]))
    if not math.isfinite(base):
        return Knee(low, True, None)
    stay = float(
        np.median([call.end - call.due for call in ordered[: len(ordered) // 4] if call.end is not None] or [0.0])
    )
    above = [level > KNEE_X * base for _, level in levels]
    calm = len(above) - next((n for n, high_ in enumerate(reversed(above)) if not high_), len(above))
    if calm == len(above):
        return Knee(rate_of_ramp(low, high, seconds, seconds), False, 1e3 * base)
    at = _crossing(levels, calm, KNEE_X * base)
    return Knee(rate_of_ramp(low, high, seconds, max(0.0, at - stay / 2)), True, 1e3 * base)


def _crossing(levels: Sequence[tuple[float, float]], first: int, limit: float) -> float:
    """When the level crosses the limit, between the window before `first` and this one."""
    if first == 0:
        return levels[0][0]
    (before, low), (after, high) = levels[first - 1], levels[first]
    if not math.isfinite(high):
        return before
    return before + (after - before) * (limit - low) / (high - low)


def _window(calls: Sequence[Call], begin: float, width: float) -> tuple[float, float | None]:
    """The middle of a window, and its p95; None with too few calls."""
    waits = [math.inf if call.ttft is None else call.ttft for call in calls if begin <= call.due < begin + width]
    middle = begin + width / 2
    if len(waits) < WINDOW_CALLS:
        return middle, None
    return middle, sorted(waits)[math.ceil(0.95 * len(waits)) - 1]
