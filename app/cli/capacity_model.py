"""What a fleet asks of one PostgreSQL: chunks per second, cores, connections, disk, and which of them runs out first. Pure.

Each constant names its source: the arm of `benchmarks.scale` that measured it.
"""

from dataclasses import dataclass
from math import ceil

DAY_SECONDS = 86_400
HEADROOM = 2.0  # a server that is busy half of the time keeps its latency
_MEGABYTE, _GIGABYTE = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class Constant:
    """A cost of the server, and where it was measured."""

    value: float
    source: str


_MACHINE = "two quiet cores of an AMD EPYC, PostgreSQL 18.4"
MEASURED = f"`python -m benchmarks.scale --only costs`, one run on {_MACHINE}"
HOT_ACCOUNT = f"`python -m benchmarks.scale --only hot_account`, the lower median of two runs on {_MACHINE}"
POOL_SIZE = "SLACKWATER_DATABASE_POOL_SIZE: the most that one process opens"

CHUNK_MS = Constant(0.762, MEASURED)  # of the server: claim, load, one flush, finish
ITEM_MS = Constant(0.024, MEASURED)  # of the server: to load it and to store its answer
SUBMITTED_ITEM_MS = Constant(0.005, MEASURED)
HEARTBEAT_MS = Constant(0.295, MEASURED)  # of a process with eight engines, with what they report
WAL_BYTES = Constant(417, MEASURED)  # of an item, beside its bodies
DISK_BYTES = Constant(343, MEASURED)  # the same
# Of one account in one pool, per second: its row in the fair order is the limit.
ACCOUNT_CHUNKS = Constant(1486, HOT_ACCOUNT)
CONSTANTS = (
    "CHUNK_MS",
    "ITEM_MS",
    "SUBMITTED_ITEM_MS",
    "HEARTBEAT_MS",
    "WAL_BYTES",
    "DISK_BYTES",
    "ACCOUNT_CHUNKS",
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is asked for. Rates are of all engines together while they do batch work alone.

    `bytes_per_item`: of a request and its answer. `days`: how long batches are kept. `engines_per_process`: of a worker.
    """

    engines: int
    tokens_per_second: float  # of one engine
    tokens_per_item: float
    bytes_per_item: float
    days: float
    chunk_tokens: int
    chunk_items: int
    heartbeat_seconds: float
    connections_per_process: int
    engines_per_process: int = 1
    other_processes: int = 8  # two APIs, two stewards, two maintenance workers, two notifiers

    @property
    def items_per_second(self) -> float:
        """At full load."""
        return self.engines * self.tokens_per_second / self.tokens_per_item

    @property
    def chunks_per_second(self) -> float:
        """A chunk is full by its tokens or by its items, and has one item at least."""
        return self.items_per_second / min(self.chunk_items, max(1.0, self.chunk_tokens / self.tokens_per_item))

    @property
    def workers(self) -> int:
        """Processes of workers."""
        return ceil(self.engines / self.engines_per_process)


@dataclass(frozen=True, slots=True)
class Server:
    """What one PostgreSQL server has."""

    cores: float
    connections: int
    disk_gb: float


@dataclass(frozen=True, slots=True)
class Need:
    """A need in a unit, what there is (None: nothing limits it), and what to do where that is too little."""

    name: str
    needed: float
    unit: str
    limit: float | None
    remedy: str

    @property
    def share(self) -> float:
        """What is used of what there is; above 1 it is too little."""
        return self.needed / self.limit if self.limit else 0.0


def needs(fleet: Fleet, server: Server) -> list[Need]:
    """Everything that a fleet at full load needs."""
    items, chunks = fleet.items_per_second, fleet.chunks_per_second
    kept = items * (fleet.bytes_per_item + DISK_BYTES.value) * DAY_SECONDS * fleet.days
    connections = fleet.connections_per_process * (fleet.workers + fleet.other_processes)
    wal = items * (fleet.bytes_per_item + WAL_BYTES.value)
    return [
        Need("items", items, "per second", None, ""),
        Need("chunks", chunks, "per second", None, ""),
        Need("chunks of one account", chunks, "per second", ACCOUNT_CHUNKS.value, _ACCOUNT),
        Need("cores", HEADROOM * busy_cores(fleet), "", server.cores, _CORES),
        Need("connections", connections, "", server.connections, _CONNECTIONS),
        Need("WAL", wal / _MEGABYTE, "MB per second", None, ""),
        Need("disk", kept / _GIGABYTE, "GB", server.disk_gb, _DISK),
    ]


def busy_cores(fleet: Fleet) -> float:
    """Cores of the server that are busy all the time."""
    milliseconds = fleet.chunks_per_second * CHUNK_MS.value
    milliseconds += fleet.items_per_second * (ITEM_MS.value + SUBMITTED_ITEM_MS.value)
    milliseconds += fleet.workers / fleet.heartbeat_seconds * HEARTBEAT_MS.value
    return milliseconds / 1e3


def first_bottleneck(found: list[Need]) -> Need:
    """The need that runs out first as the fleet grows."""
    return max(found, key=lambda need: need.share)


_ACCOUNT = "Spread the work over several accounts, or raise SLACKWATER_CHUNK_TOKENS and SLACKWATER_CHUNK_ITEMS."
_CORES = "Give the server more cores, or raise SLACKWATER_CHUNK_TOKENS and SLACKWATER_CHUNK_ITEMS: fewer chunks."
_CONNECTIONS = "Raise max_connections, put PgBouncer in front, or lower SLACKWATER_DATABASE_POOL_SIZE."
_DISK = "Keep batches for fewer days (SLACKWATER_RETENTION_DAYS), or put bodies into an object store (SLACKWATER_OBJECT_KB)."
