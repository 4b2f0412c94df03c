"""Predicts how long an engine step takes, from the steps so far. Pure Python: it also runs inside the engine.

    seconds = base + below * tokens + (above - below) * max(0, tokens - knee) + per_context * context

Up to the knee, a step is limited by reading the model's weights; beyond it, by arithmetic. The coefficients come from recursive
least squares on relative errors, with forgetting. They stay non-negative and convex, so that the planner can invert the
model with running sums. Several candidate knees learn in parallel, and the one with the best predictions is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

KNEES = (192.0, 32.0, 96.0, 320.0, 512.0)
FORGET = 0.998
CLIP = 3.0  # a step counts as at most this many times its prediction, so that one slow step is not a trend
_LEAST_SECONDS = 1e-4  # no step is shorter, so a prediction below it (0, if all weights are) is no measure
WARM = 32  # samples before a prediction can be used
RECENT = 0.03  # weight of the last error in the recent mean

_PRIOR = 100.0  # variance of an unknown coefficient, in seconds per unit of its feature
_STICKY = 0.95  # another knee is used if its error is below this share of the present one's
_TOKENS, _CONTEXT = 1e2, 1e5  # units of the features, so that all four have a similar size

Vector = list[float]


@dataclass(slots=True)
class _Fit:
    """Least squares for one knee: weights of 1, tokens, context, tokens above the knee."""

    knee: float
    weights: Vector = field(default_factory=lambda: [0.0] * 4)
    covariance: list[Vector] = field(default_factory=lambda: [[_PRIOR * (i == j) for j in range(4)] for i in range(4)])
    error: float = 1.0
    samples: int = 0

    def predict(self, tokens: float, context: float) -> float:
        w = self.weights
        excess = tokens - self.knee
        return w[0] + (w[1] * tokens + (w[3] * excess if excess > 0 else 0.0)) / _TOKENS + w[2] * context / _CONTEXT

    def learn(self, tokens: float, context: float, seconds: float) -> None:
        predicted = self.predict(tokens, context)
        self.samples += 1
        self.error += max(RECENT, 1 / self.samples) * (abs(seconds - predicted) / max(seconds, predicted) - self.error)
        if self.samples > WARM and predicted > _LEAST_SECONDS:
            seconds = min(seconds, CLIP * predicted)
        scale = 1 / seconds  # relative errors, so that long prefills do not outweigh decodes
        x = [
            scale,
            tokens * scale / _TOKENS,
            context * scale / _CONTEXT,
            max(0.0, tokens - self.knee) * scale / _TOKENS,
        ]
        self._update(x, 1 - predicted * scale)
        self._project()

    def _update(self, x: Vector, error: float) -> None:
        a, b, c, d = x
        p = self.covariance
        px = [row[0] * a + row[1] * b + row[2] * c + row[3] * d for row in p]
        novelty = a * px[0] + b * px[1] + c * px[2] + d * px[3]
        if novelty <= 0:
            return
        # Kulhavy's directional forgetting: only knowledge that is seen again is forgotten, so that hours of one kind
        # of step do not spoil the predictions of other kinds.
        keep = min(FORGET, 1 - 4 / (self.samples + 8))  # the first steps of an engine are the least typical
        beta = keep - (1 - keep) / novelty
        shrink = beta / (1 + beta * novelty)
        gain = error / (1 + novelty)
        q, r, s, t = px
        for i, row in enumerate(p):
            u = px[i] * shrink
            self.weights[i] += px[i] * gain
            p[i] = [row[0] - u * q, row[1] - u * r, row[2] - u * s, row[3] - u * t]

    def _project(self) -> None:
        """Raise a negative coefficient to 0, and move the others by the covariance."""
        w = self.weights
        for i in range(4):
            if w[i] < 0:
                column, share = self.covariance[i], w[i] / self.covariance[i][i]
                for j in range(4):
                    w[j] -= column[j] * share
        for i in range(4):
            w[i] = max(0.0, w[i])


class StepModel:
    """Seconds of a step from its tokens and the context tokens its attention reads."""

    def __init__(self) -> None:
        self._fits = [_Fit(knee) for knee in KNEES]
        self._best = self._fits[0]
        self._learnt = 0

    @classmethod
    def of(cls, weights: Sequence[float]) -> "StepModel":
        """A model that starts with the `weights` of an earlier one and goes on learning. Raises ValueError."""
        if len(weights) != 5 or not all(0 <= w < 1e6 for w in weights):
            raise ValueError("five non-negative numbers: base, below, per_context, above - below, knee")
        base, below, per_context, bend, knee = weights
        model = cls()
        for fit in model._fits:
            fit.weights = [base, below * _TOKENS, per_context * _CONTEXT, bend * _TOKENS]
        model._best = min(model._fits, key=lambda fit: abs(fit.knee - knee))
        return model

    @property
    def weights(self) -> tuple[float, float, float, float, float]:
        """The argument of `of`: base, slope below, per context token, extra slope above, knee."""
        w = self._best.weights
        return w[0], w[1] / _TOKENS, w[2] / _CONTEXT, w[3] / _TOKENS, self._best.knee

    @property
    def base(self) -> float:
        """Seconds of an empty step."""
        return self._best.weights[0]

    @property
    def slope_below(self) -> float:
        """Seconds that one more token costs up to the knee; never negative."""
        return self._best.weights[1] / _TOKENS

    @property
    def slope_above(self) -> float:
        """Seconds that one more token costs beyond the knee; never less than below it."""
        return (self._best.weights[1] + self._best.weights[3]) / _TOKENS

    @property
    def per_context(self) -> float:
        """Seconds per token of context that is read; never negative."""
        return self._best.weights[2] / _CONTEXT

    @property
    def knee(self) -> float:
        """Tokens of a step above which `slope_above` applies."""
        return self._best.knee

    @property
    def error(self) -> float:
        """Recent mean of |measured - predicted| over the larger of both, 0..1; 1 before the first step."""
        return self._best.error

    @property
    def samples(self) -> int:
        """Steps learnt since the model began."""
        return self._learnt

    def predict(self, tokens: float, context: float) -> float:
        """Seconds of a step of `tokens` new tokens over `context` tokens already computed."""
        return self._best.predict(tokens, context)

    def learn(self, tokens: float, context: float, seconds: float) -> None:
        """Learn from one measured step. Steps without tokens or time are skipped."""
        if tokens <= 0 or not 0 < seconds < 3600:
            return
        best = self._best
        best.learn(tokens, context, seconds)
        self._learnt += 1
        if self._learnt % 2:  # one rival at every other step, to limit the cost
            return
        rival = self._fits[self._learnt // 2 % len(self._fits)]
        if rival is not best:
            rival.learn(tokens, context, seconds)
            if rival.samples > WARM and rival.error < _STICKY * best.error:
                self._best = rival
