"""Workloads: the arrivals of synchronous requests, and the sizes of the batch requests beside them.

Synchronous requests follow the conversation trace of the Azure Public Dataset 2023 (Microsoft, CC-BY-4.0; Patel et al.,
Splitwise, ISCA 2024): a generator with parameters fitted to it, or the trace itself. Arrivals form an open loop. They are
the same for every arm of one seed.
"""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.colocation.engine_profiles import GPU, SLOW, EngineProfile

# Inverse CDFs, log-linear between these points: both have several modes, which a lognormal distribution does not have.
QUANTILES = (0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9, 100)
PROMPT_TOKENS = (2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4142, 6179, 14050)
OUTPUT_TOKENS = (7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 601, 954, 1000)

RATE = 5.53  # requests per second
MINUTE_MEMORY, MINUTE_SPREAD = 0.9, 0.21  # AR(1) of the log rate, per minute; its stationary standard deviation
SECOND_SHAPE = 39.0  # of the gamma factor of mean 1, per second

CYCLE_SECONDS = 16.0  # period of on/off traffic: twice the rate in one half, nothing in the other
BURST_SECONDS = 10.0
BURST_PROMPT, BURST_OUTPUT = 1000, 130
CHATS_RATE, CHATS_TOKENS = 3.0, (50, 6)  # requests per second, mean tokens in and out
TRACE_START = 600.0  # second of the trace at which the slice of the first seed begins
TRACE_STRIDE = 450.0  # seconds by which the slice of each further seed begins later


@dataclass(frozen=True, slots=True)
class Arrival:
    """A synchronous request: seconds since the start, tokens in, tokens out."""

    at: float
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Synchronous arrivals for `seconds` and the range of batch sizes.

    `speed`: share of the trace's rate; `burst`: further requests per second for ten seconds in the middle;
    `ramp`: the rate swings from a fifth to the whole and back, once; `chats`: short ones, of this kind, instead of the trace.
    """

    name: str
    seconds: float
    speed: float = 1.0
    burst: float = 0.0
    ramp: bool = False
    batch_prompt: tuple[int, int] = (256, 2048)
    batch_output: tuple[int, int] = (64, 512)
    chats: str = ""
    engine: EngineProfile = GPU

    def arrivals(self, seed: int, trace: Path | None = None) -> list[Arrival]:
        """The arrivals of one run, in order of time."""
        if self.chats:
            many = short_chats(self.chats, int(2 * CHATS_RATE * self.seconds), CHATS_RATE, *CHATS_TOKENS, seed)
            return [each for each in many if each.at < self.seconds]
        chance = Random(f"{seed} {self.name}")
        span = self.seconds * self.speed
        source = conversation(span, chance) if trace is None else traced(trace, span, seed)
        found = [Arrival(each.at / self.speed, each.prompt, each.output) for each in source]
        if self.ramp:
            found = [each for each in found if chance.random() < self._share(each.at)]
        return sorted(found + self._burst(), key=lambda each: each.at)

    def _share(self, at: float) -> float:
        return 0.6 - 0.4 * math.cos(2 * math.pi * at / self.seconds)

    def _burst(self) -> list[Arrival]:
        count = int(self.burst * BURST_SECONDS)
        begin = self.seconds / 2
        return [Arrival(begin + BURST_SECONDS * n / count, BURST_PROMPT, BURST_OUTPUT) for n in range(count)]


def workloads(quick: bool) -> dict[str, Workload]:
    """All workloads by name."""
    long = 1.0 if quick else 4.0
    listed = (
        Workload("conversation", 60 * long),
        Workload("burst", 40 * long, speed=0.5, burst=14),
        Workload("burst_long", 40 * long, speed=0.5, burst=14, batch_output=(1500, 4000)),
        Workload("diurnal", 50 * long, ramp=True),
        Workload("light", 40 * long, speed=0.25),
    )
    return {each.name: each for each in listed}


def slow_workloads(quick: bool) -> dict[str, Workload]:
    """The workloads of the engine track, for the simulated engine that is as slow as that one."""
    seconds = 60.0 if quick else 240.0
    return {
        kind: Workload(kind, seconds, chats=kind, engine=SLOW, batch_prompt=(75, 95), batch_output=(64, 64))
        for kind in ("poisson", "onoff")
    }


def conversation(seconds: float, chance: Random) -> Iterator[Arrival]:
    """A Poisson process. Its rate follows an AR(1) process by the minute, with a gamma factor by the second."""
    log_rate = chance.gauss(0, MINUTE_SPREAD)
    innovation = MINUTE_SPREAD * math.sqrt(1 - MINUTE_MEMORY**2)
    for second in range(math.ceil(seconds)):
        if second and second % 60 == 0:
            log_rate = MINUTE_MEMORY * log_rate + chance.gauss(0, innovation)
        jump = chance.gammavariate(SECOND_SHAPE, 1 / SECOND_SHAPE)
        rate = RATE * math.exp(log_rate - MINUTE_SPREAD**2 / 2) * jump
        at = second + chance.expovariate(rate)
        while at < min(second + 1, seconds):
            yield Arrival(at, _drawn(PROMPT_TOKENS, chance), _drawn(OUTPUT_TOKENS, chance))
            at += chance.expovariate(rate)


def short_chats(kind: str, count: int, rate: float, words: int, tokens: int, seed: int) -> list[Arrival]:
    """`count` arrivals at `rate` per second on average. `kind`: `poisson`, or `onoff` with bursts of twice the rate."""
    chance, at, listed = Random(f"{seed} {kind}"), 0.0, []
    for _ in range(count):
        at += chance.expovariate(rate if kind == "poisson" else 2 * rate)
        if kind == "onoff" and at % CYCLE_SECONDS >= CYCLE_SECONDS / 2:
            at = (at // CYCLE_SECONDS + 1) * CYCLE_SECONDS
        listed.append(
            Arrival(at, chance.randint(words // 2, words * 3 // 2), chance.randint(tokens // 2, tokens * 3 // 2))
        )
    return listed


def _drawn(points: tuple[int, ...], chance: Random) -> int:
    quantile = chance.random() * 100
    above = min(bisect_right(QUANTILES, quantile), len(points) - 1)
    low, high = QUANTILES[above - 1], QUANTILES[above]
    growth: float = (points[above] / points[above - 1]) ** ((quantile - low) / (high - low))
    return round(points[above - 1] * growth)


def traced(path: Path, seconds: float, seed: int) -> Iterator[Arrival]:
    """A slice of a trace: CSV with arrived_at (seconds), num_prefill_tokens, num_decode_tokens.

    Each seed takes another slice. Raises ValueError if the trace is shorter than `seconds`.
    """
    with path.open(newline="") as file:
        names = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
        table = ([float(row[name]) for name in names] for row in csv.DictReader(file))
        rows = [Arrival(at, int(prompt), int(output)) for at, prompt, output in table]
    last = rows[-1].at if rows else 0.0
    if last < seconds:
        raise ValueError(f"{path} covers {last:.0f} s, less than the {seconds:.0f} s of a run")
    begin = (TRACE_START + TRACE_STRIDE * (seed - 1)) % (last - seconds) if last > seconds else 0.0
    for row in rows:
        if begin <= row.at < begin + seconds:
            yield Arrival(row.at - begin, max(1, row.prompt), max(1, row.output))
