"""What a request carries besides its content: names, tags and keys that are stored with a batch."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.metering.spend_labels import NO_SPEND_LABELS, SpendLabels
from app.tracing.span import Origin


@dataclass(frozen=True, slots=True)
class RequestLabels:
    """The labels of one request. None: the caller set none.

    `correlation_id`: the caller's id of the HTTP request. `session`: synchronous requests of one session go to the same engine
    while it has room; a queued request only stores its session. `origin`: its span; None: no spans are recorded. Then
    `traceparent` is the caller's, otherwise that of the span. `named_in`: texts besides from which `spend` was put into form.
    """

    correlation_id: str | None = None
    traceparent: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    spend: SpendLabels = NO_SPEND_LABELS
    origin: Origin | None = None
    named_in: tuple[str, ...] = ()

    @property
    def stored(self) -> tuple[str | None, ...]:
        """The texts that are stored as the caller wrote them."""
        pairs = (text for pair in (self.metadata or {}).items() for text in pair)
        labels = (self.spend.workflow, self.spend.task, self.spend.variant, self.spend.family)
        return (self.correlation_id, self.session, self.idempotency_key, *self.tags, *pairs, *labels, *self.named_in)


NO_LABELS = RequestLabels()
