"""The step times of an engine, learned outside it: from the counters of two scrapes and from our own requests. If the engine
counts no steps, they are learned from the time between two tokens of our own streams.

The counters of two scrapes of a busy engine give the mean seconds and the mean tokens of the steps in between. Each pair is one
observation for the step model. Tokens that were not computed for our requests are synchronous. If several engines share the
counters, the values are those of one engine under an even load.
"""

import collections
import math
from collections.abc import Mapping

from app.headroom.engine_metrics import EngineGauges
from app.headroom.signals import BatchLoad, Scrape, StepTime
from app.headroom.stream_pace import Key, StreamPace, StreamState
from workers.engine.step_model import StepModel

RECENT_SECONDS = 0.45  # step times are means over this time
LIVE_SECONDS = 2.0  # counters are ignored for this long after a step that the engine reported itself
LEARNT = 20  # observations before the model is used


class StepMeter:
    """Feeds one engine's step model, and gives the present `StepTime`."""

    def __init__(self, model: StepModel | None = None) -> None:
        self.model = model or StepModel()
        self._last: tuple[Scrape, BatchLoad] | None = None
        self._reported_at, self._busy = -math.inf, False
        self._seen: collections.deque[tuple[float, float, float, float]] = collections.deque()
        self._pace = StreamPace()
        self._largest = 0.0, 0.0  # tokens of the largest step that was seen, and the largest context

    def observe(self, scrape: Scrape, batch: BatchLoad) -> None:
        """Take a new scrape. It is skipped if it shows an idle engine, a restart, or no step."""
        last, self._last = self._last, (scrape, batch)
        if scrape.sampled_at - self._reported_at < LIVE_SECONDS:
            return
        if last is None or last[0].gauges is None or scrape.gauges is None:
            self._seen.clear()
            return
        before, after = last[0].gauges, scrape.gauges
        steps, tokens = after.steps - before.steps, after.step_tokens - before.step_tokens
        seconds = scrape.sampled_at - last[0].sampled_at
        if steps <= 0 or tokens < 0 or seconds <= 0 or not before.running or not after.running:
            self._seen.clear()
            return
        ours = min(tokens, max(0, batch.computed_tokens - last[1].computed_tokens))
        self._learn(tokens / steps, _context(after), seconds * after.engines / steps)
        self._remember(seconds, steps, tokens / steps, (tokens - ours) / steps)

    def observe_step(self, at: float, tokens: int, context: float, busy: bool, ours: int) -> None:
        """Take one step that the engine reports: its time, its tokens and their context, whether the engine has more work, and
        how many tokens were ours. The first step after idleness is skipped, because its start is not known.
        """
        seconds = at - self._reported_at
        if tokens > 0 and self._busy and 0 < seconds < LIVE_SECONDS:
            self._learn(tokens, context, seconds)
            self._remember(seconds, 1, float(tokens), float(max(0, tokens - ours)))
        self._reported_at, self._busy = at, busy

    def observe_streams(self, now: float, streams: Mapping[Key, StreamState], synchronous: int, context: float) -> None:
        """Take how far our own streams are, for an engine that counts no steps. `synchronous` requests of others decode, and all
        have `context` tokens. A step is taken to compute one token of each.
        """
        if not any(stream.received for stream in streams.values()):
            self._seen.clear()
        if (pace := self._pace.observe(now, streams)) is None:
            return
        self._learn(pace.streams + synchronous, context, pace.seconds)
        self._remember(pace.elapsed, pace.elapsed / pace.seconds, pace.streams + synchronous, synchronous)

    def longest(self) -> float:
        """Predicted seconds of the largest step so far over the largest context so far; 0: not known yet."""
        return self.model.predict(*self._largest) if self.model.samples >= LEARNT else 0.0

    def _learn(self, tokens: float, context: float, seconds: float) -> None:
        self.model.learn(tokens, context, seconds)
        self._largest = max(self._largest[0], tokens), max(self._largest[1], context)

    def _remember(self, seconds: float, steps: float, tokens: float, synchronous: float) -> None:
        self._seen.append((seconds, steps, tokens, synchronous))
        while sum(entry[0] for entry in self._seen) - self._seen[0][0] >= RECENT_SECONDS:
            self._seen.popleft()

    def now(self, scrape: Scrape | None, batch: BatchLoad, synchronous: int) -> StepTime | None:
        """The present step time, with `synchronous` requests decoding. None: not known yet, or nothing runs."""
        gauges = scrape.gauges if scrape else None
        if gauges is None or not self._seen or self.model.samples < LEARNT:
            return None
        seconds, steps = sum(s[0] for s in self._seen), sum(s[1] for s in self._seen)
        engines = gauges.engines
        context = max(0.0, _context(gauges) - batch.context_tokens / engines)
        alone = sum(s[3] * s[1] for s in self._seen) / steps
        mean = batch.context_tokens / batch.requests if batch.requests else 0.0
        decode = self.model.predict(synchronous / engines, context)
        together = self.model.predict((synchronous + 8) / engines, context + 8 * mean / engines)
        return StepTime(
            measured=engines * seconds / steps,
            alone=self.model.predict(max(1.0, alone), context),
            decode=decode,
            shortest=self.model.predict(1, 0),
            per_request=max(0.0, together - decode) / 8,
        )


def _context(gauges: EngineGauges) -> float:
    """Tokens of context of all running requests of an engine."""
    return gauges.kv_usage * gauges.kv_capacity / gauges.engines
