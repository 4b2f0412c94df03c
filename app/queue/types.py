"""The types of the queue's interface: leases, items, results."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from app.states import BatchState

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")  # of results, as columns have them
AMOUNTS = ("maximum_cost", "maximum_tokens", "expected_cost", "expected_tokens")  # what a chunk may cost and use


class Kind(StrEnum):
    """The kind of a batch: an actual batch, one request that its caller waits for, a stage of a pipeline, or a summary of a
    conversation.
    """

    BATCH = "batch"
    RESPONSE = "response"
    FLEX = "flex"
    STAGE = "stage"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write the results of one chunk; (chunk_id, token, worker_id) is the fence.

    `attempt`: workers that were lost with the chunk. `deaths`: engines that died with its item in them. `retries`: how often
    transient errors sent it back.
    """

    chunk_id: int
    token: int
    worker_id: int
    batch_id: int
    run: int
    tenant_id: int
    lo: int
    hi: int
    seqs: list[int] | None
    n: int
    est_tokens: int
    attempt: int = 0
    deaths: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """What is needed to end a lease: the fence (`chunk_id`, `token`, `worker_id`), the run, and the number of items."""

    chunk_id: int
    token: int
    worker_id: int
    batch_id: int
    run: int
    n: int


@dataclass(frozen=True, slots=True)
class HeldLease:
    """One lease in the answer to a heartbeat, with the state of its batch."""

    chunk_id: int
    token: int
    batch_id: int
    run: int
    n: int
    batch: BatchState


class Item(NamedTuple):
    """One inference request without a durable result. `body`: the caller's JSON, verbatim; if `stored`, the key of its object.

    `notify`: its result writes an event. `kind`: of its batch. `open_ended`: an answer without a limit may use the rest of the
    context. `waited_seconds`: since the begin of its run, when it was loaded. `request_id`: of its batch.
    `kek`, `wrapped_key`: the data key of its batch, if that is sealed; then `body`, unless `stored`, is the sealed form until
    the worker opens it. `feeds`: its result is handed on to another batch.
    """

    seq: int
    model: str
    endpoint: str
    body: bytes
    stored: bool = False
    traceparent: str | None = None
    notify: bool = False
    kind: str = Kind.BATCH
    open_ended: bool = False
    waited_seconds: float | None = None
    request_id: str | None = None
    kek: str | None = None
    wrapped_key: bytes | None = None
    feeds: bool = False


class Result(NamedTuple):
    """The outcome of one item. `body`: the engine's answer if `ok`, else `{"code", "message"}`; if `stored`, its object's key.

    Times are from when the item was first sent under its lease. `queued_ms`: from the begin of its run until then. None: not
    known. `error`: the class of its error; None: it has none. `details`: see `app.engines.outcome.Usage`; None: none.
    """

    seq: int
    ok: bool
    attempt: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    body: bytes
    yields: int = 0
    stored: bool = False
    first_token_ms: float | None = None
    duration_ms: float | None = None
    queued_ms: float | None = None
    error: str | None = None
    details: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """What a worker measured during a lease. `engine_ms`: what the items had of the engine, also those that go back.
    `unrun`: results that no engine was asked for.

    `first_tokens`, `durations`: one byte for each answer, the bucket of its time in `app.metering.sketch`.
    """

    engine_ms: int = 0
    first_tokens: bytes = b""
    durations: bytes = b""
    unrun: int = 0


NO_TIMES = ChunkTimes()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a lease ended: the items with a result, and the items that went back to the queue."""

    done: int
    returned: int
