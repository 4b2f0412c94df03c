"""What crosses the queue's border: leases, items, results."""

from dataclasses import dataclass
from enum import StrEnum

from app.states import BatchState


class Kind(StrEnum):
    """What a batch is to its caller: a batch, or one request that the caller waits for."""

    BATCH = "batch"
    RESPONSE = "response"
    FLEX = "flex"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write the results of one chunk; (chunk_id, token, worker_id) is the fence.

    `attempt` workers were lost with it, `deaths` engines died with its item in them, and transient errors sent it back
    `retries` times.
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
class Held:
    """A lease as the queue has it, beside the state of its batch; a heartbeat's answer."""

    chunk_id: int
    token: int
    batch_id: int
    run: int
    n: int
    batch: BatchState


@dataclass(frozen=True, slots=True)
class Item:
    """One inference request without a durable result. `body` is the caller's JSON, verbatim, or if `stored` its object's key.

    `tells`: somebody wants to hear when it is done. `kind`: its batch's. `open_ended`: without a limit of its own the answer may
    take what is left of the context.
    """

    seq: int
    model: str
    endpoint: str
    body: bytes
    stored: bool = False
    traceparent: str | None = None
    tells: bool = False
    kind: str = Kind.BATCH
    open_ended: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one item: `body` is the engine's answer if `ok`, else `{"code", "message"}`; or, if `stored`, its key."""

    seq: int
    ok: bool
    attempt: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    body: bytes
    yields: int = 0
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """How a lease ended: items that had results, and items that went back to the queue."""

    done: int
    returned: int
