"""What requests used, as counts that are added up: in the queue's deltas, in the ledger, and in reports. Pure."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(slots=True)
class UsageCounts:
    """The usage of some requests. `prompt`, `cached` and `output` are tokens; cached ones are part of the prompt.

    `repeats`: results of a batch's second or later run. `retried`: results that took more than one attempt. `engine_ms`: what
    queued requests had of the time in which an engine worked on any of them (see `workers.gpu.requests_in_engine`).
    """

    requests: int = 0
    ok: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    repeats: int = 0
    retried: int = 0
    retried_ok: int = 0
    yields: int = 0
    engine_ms: int = 0

    def __iadd__(self, other: "UsageCounts") -> Self:
        self.requests += other.requests
        self.ok += other.ok
        self.prompt += other.prompt
        self.cached += other.cached
        self.output += other.output
        self.repeats += other.repeats
        self.retried += other.retried
        self.retried_ok += other.retried_ok
        self.yields += other.yields
        self.engine_ms += other.engine_ms
        return self

    @property
    def failed(self) -> int:
        """Requests without an answer."""
        return self.requests - self.ok

    @property
    def tokens(self) -> int:
        """Of prompts and answers together."""
        return self.prompt + self.output


COUNTS = tuple(field.name for field in fields(UsageCounts))
