"""Every state and every transition, as data.

One table for each machine is used in four places: the guard of each UPDATE (`guard`), the CHECK constraint on the column
(`check`), the diagrams in docs/states.md (`mermaid`) and the tests. A transition that is not in a table cannot happen.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class BatchState(StrEnum):
    """What a submit created. `open` covers `queued` and `running` of the API.

    While it is `cancelling` or `expiring`, its queued items have ended already, and those in an engine may still finish.
    """

    OPEN = "open"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    EXPIRING = "expiring"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ChunkState(StrEnum):
    """A range of items, leased as one. `unreserved`: its budgets have no money for it yet. `held`: its batch is paused.

    A finished chunk is deleted; `gone` is never stored.
    """

    UNRESERVED = "unreserved"
    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    HELD = "held"
    GONE = "gone"


class EndpointState(StrEnum):
    """Where a tenant gets its events.

    `pending`: it has not accepted a test event yet. `paused`: its events wait. `disabled`: it gets no events. `closing`: its
    owner has deleted it and cannot see it, and its deliveries are being removed. `gone`: removed, and so never stored.
    """

    PENDING = "pending"
    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    CLOSING = "closing"
    GONE = "gone"


class DeliveryState(StrEnum):
    """One event for one endpoint. `held`: the endpoint is not active."""

    PENDING = "pending"
    HELD = "held"
    SENDING = "sending"
    DELIVERED = "delivered"
    DEAD = "dead"


class TenantState(StrEnum):
    """An account. `closing`: it cannot be used, and its data is being removed. `gone`: removed, and so never stored."""

    ACTIVE = "active"
    CLOSING = "closing"
    GONE = "gone"


class EngineState(StrEnum):
    """One vLLM server as its worker last saw it."""

    STARTING = "starting"
    READY = "ready"
    DOWN = "down"


class EngineIntake(StrEnum):
    """Whether an engine takes new work. The operator sets it, and the engine's worker and the gateways follow it.

    `draining`: requests in flight finish. `returning`: batch requests in flight go back to the queue at once.
    """

    OPEN = "open"
    DRAINING = "draining"
    RETURNING = "returning"


class FileState(StrEnum):
    """A file. `pending`: its object may not be stored yet, and its owner does not see it."""

    PENDING = "pending"
    READY = "ready"


class UploadState(StrEnum):
    """A file that is uploaded in parts."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class TurnState(StrEnum):
    """A turn of a conversation. `queued`: it waits for the turns before it. `running`: it is the one turn that may end."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ParkedState(StrEnum):
    """An item of a pipeline that waits for an answer from outside. The first of answer and timeout wins.

    `dropped`: its pipeline was cancelled or has expired.
    """

    WAITING = "waiting"
    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Transition:
    """`verb` moves a row from any of `sources` to `target`."""

    verb: str
    sources: tuple[StrEnum, ...]
    target: StrEnum


@dataclass(frozen=True)
class Machine:
    """A named state machine: its states, the state in which a row starts, and its transitions.

    `unstored`: states that no row has. `births`: further (verb, state) pairs in which a row can start. `ends`: states in which
    a row may stay for ever although a verb leaves them. `table` and `column` hold the state; the default table is `name`.
    """

    name: str
    states: type[StrEnum]
    initial: StrEnum
    transitions: tuple[Transition, ...]
    unstored: frozenset[StrEnum] = frozenset()
    births: tuple[tuple[str, StrEnum], ...] = ()
    ends: tuple[StrEnum, ...] = ()
    table: str = ""
    column: str = "state"

    def target(self, verb: str) -> StrEnum:
        """The state that `verb` leads to. Raises KeyError for a verb that the machine does not have."""
        for transition in self.transitions:
            if transition.verb == verb:
                return transition.target
        raise KeyError(f"{self.name} has no transition {verb!r}")

    def stored(self) -> tuple[StrEnum, ...]:
        """The states a row can be in."""
        return tuple(state for state in self.states if state not in self.unstored)

    def final(self) -> tuple[StrEnum, ...]:
        """The final states: `ends`, and the stored states that no transition leaves."""
        sources = {source for t in self.transitions for source in t.sources}
        return tuple(state for state in self.stored() if state in self.ends or state not in sources)

    def check(self) -> str:
        """The SQL of the CHECK constraint on the state column."""
        return f"{self.column} in ({_literals(self.stored())})"

    def guard(self, verb: str, alias: str = "") -> str:
        """The SQL condition on a row that `verb` requires. `alias`: the table's alias with its dot. Raises KeyError."""
        sources = tuple(s for t in self.transitions if t.verb == verb for s in t.sources)
        if not sources:
            raise KeyError(f"{self.name} has no transition {verb!r}")
        if len(sources) == 1:
            return f"{alias}{self.column} = '{sources[0]}'"
        return f"{alias}{self.column} in ({_literals(sources)})"

    def mermaid(self) -> str:
        """The machine as a mermaid state diagram."""

        def name(state: StrEnum) -> str:
            return "[*]" if state in self.unstored else state.value

        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    [*] --> {state}: {verb}" for verb, state in self.births]
        for t in self.transitions:
            lines += [f"    {name(source)} --> {name(t.target)}: {t.verb}" for source in t.sources]
        lines += [f"    {state} --> [*]" for state in self.final()]
        return "\n".join(lines)


def _literals(states: tuple[StrEnum, ...]) -> str:
    return ", ".join(f"'{state}'" for state in states)


_B, _C, _D, _E, _I, _P = BatchState, ChunkState, DeliveryState, EngineState, EngineIntake, EndpointState
_T, _U, _F, _W, _N = TenantState, UploadState, FileState, ParkedState, TurnState

_ENDS = (_B.COMPLETED, _B.FAILED, _B.CANCELLED, _B.EXPIRED)

BATCH = Machine(
    "batch",
    BatchState,
    _B.OPEN,
    (
        Transition("pause", (_B.OPEN,), _B.PAUSED),
        Transition("resume", (_B.PAUSED,), _B.OPEN),
        Transition("cancel", (_B.OPEN, _B.PAUSED), _B.CANCELLING),
        Transition("expire", (_B.OPEN, _B.PAUSED), _B.EXPIRING),
        Transition("complete", (_B.OPEN, _B.PAUSED, _B.EXPIRING), _B.COMPLETED),
        Transition("fail", (_B.OPEN, _B.PAUSED, _B.EXPIRING), _B.FAILED),
        Transition("end cancelled", (_B.CANCELLING,), _B.CANCELLED),
        Transition("end expired", (_B.EXPIRING,), _B.EXPIRED),
        Transition("retry", _ENDS, _B.OPEN),
    ),
    ends=_ENDS,
)

PIPELINE = replace(BATCH, name="pipeline")

PARKED = Machine(
    "parked",
    ParkedState,
    _W.WAITING,
    (
        Transition("answer", (_W.WAITING,), _W.ANSWERED),
        Transition("time out", (_W.WAITING,), _W.TIMED_OUT),
        Transition("drop", (_W.WAITING,), _W.DROPPED),
    ),
)

CHUNK = Machine(
    "chunk",
    ChunkState,
    _C.READY,
    (
        Transition("claim", (_C.READY,), _C.LEASED),
        Transition("flush", (_C.LEASED,), _C.LEASED),
        Transition("finish", (_C.LEASED,), _C.GONE),
        Transition("reap", (_C.LEASED,), _C.READY),
        Transition("promote", (_C.DELAYED,), _C.READY),
        Transition("reserve", (_C.UNRESERVED,), _C.READY),
        Transition("cut", (_C.UNRESERVED,), _C.GONE),
        Transition("take back", (_C.READY,), _C.UNRESERVED),
        Transition("wait for money", (_C.DELAYED, _C.HELD), _C.UNRESERVED),
        Transition("move", (_C.READY,), _C.UNRESERVED),
        Transition("free", (_C.READY, _C.UNRESERVED), _C.READY),
        Transition("divert", (_C.UNRESERVED,), _C.UNRESERVED),
        Transition("hold", (_C.READY, _C.DELAYED, _C.UNRESERVED), _C.HELD),
        Transition("release", (_C.HELD,), _C.READY),
        Transition("remove", (_C.READY, _C.DELAYED, _C.UNRESERVED, _C.HELD), _C.GONE),
    ),
    frozenset({_C.GONE}),
    births=(
        ("finish gives items without a result back", _C.DELAYED),
        ("its line has a budget", _C.UNRESERVED),
    ),
)

DELIVERY = Machine(
    "delivery",
    DeliveryState,
    _D.PENDING,
    (
        Transition("claim", (_D.PENDING,), _D.SENDING),
        Transition("deliver", (_D.SENDING,), _D.DELIVERED),
        Transition("retry", (_D.SENDING,), _D.PENDING),
        Transition("reap", (_D.SENDING,), _D.PENDING),
        Transition("give_up", (_D.SENDING,), _D.DEAD),
        Transition("acknowledge", (_D.PENDING, _D.HELD), _D.DELIVERED),
        Transition("hold", (_D.PENDING,), _D.HELD),
        Transition("release", (_D.HELD,), _D.PENDING),
        Transition("redeliver", (_D.PENDING, _D.DELIVERED, _D.DEAD), _D.PENDING),
    ),
    births=(("its endpoint is not active", _D.HELD),),
    ends=(_D.DELIVERED, _D.DEAD),
)

ENDPOINT = Machine(
    "endpoint",
    EndpointState,
    _P.PENDING,
    (
        Transition("verify", (_P.PENDING,), _P.ACTIVE),
        Transition("pause", (_P.PENDING, _P.ACTIVE), _P.PAUSED),
        Transition("disable", (_P.PENDING, _P.ACTIVE, _P.PAUSED), _P.DISABLED),
        Transition("enable", (_P.PAUSED, _P.DISABLED), _P.PENDING),
        Transition("close", (_P.PENDING, _P.ACTIVE, _P.PAUSED, _P.DISABLED), _P.CLOSING),
        Transition("remove", (_P.CLOSING,), _P.GONE),
    ),
    frozenset({_P.GONE}),
)

ENGINE = Machine(
    "engine",
    EngineState,
    _E.STARTING,
    (
        Transition("report_ready", (_E.STARTING, _E.DOWN, _E.READY), _E.READY),
        Transition("report_down", (_E.STARTING, _E.READY, _E.DOWN), _E.DOWN),
        Transition("restart", (_E.DOWN, _E.READY, _E.STARTING), _E.STARTING),
    ),
)

INTAKE = Machine(
    "intake",
    EngineIntake,
    _I.OPEN,
    (
        Transition("drain", (_I.OPEN,), _I.DRAINING),
        Transition("drain now", (_I.OPEN, _I.DRAINING), _I.RETURNING),
        Transition("undrain", (_I.DRAINING, _I.RETURNING), _I.OPEN),
    ),
    table="engine",
    column="intake",
)

FILE = Machine("file", FileState, _F.PENDING, (Transition("keep", (_F.PENDING,), _F.READY),))

TENANT = Machine(
    "tenant",
    TenantState,
    _T.ACTIVE,
    (
        Transition("close", (_T.ACTIVE,), _T.CLOSING),
        Transition("remove", (_T.CLOSING,), _T.GONE),
    ),
    frozenset({_T.GONE}),
)

TURN = Machine(
    "turn",
    TurnState,
    _N.QUEUED,
    (
        Transition("begin", (_N.QUEUED,), _N.RUNNING),
        Transition("end", (_N.RUNNING,), _N.DONE),
        Transition("fail", (_N.RUNNING,), _N.FAILED),
        Transition("cancel", (_N.QUEUED, _N.RUNNING), _N.CANCELLED),
    ),
    births=(("no turn is before it", _N.RUNNING), ("it is stored when it has ended", _N.DONE)),
)

UPLOAD = Machine(
    "upload",
    UploadState,
    _U.PENDING,
    (
        Transition("complete", (_U.PENDING,), _U.COMPLETED),
        Transition("cancel", (_U.PENDING,), _U.CANCELLED),
    ),
)

MACHINES = (BATCH, CHUNK, DELIVERY, ENDPOINT, ENGINE, FILE, INTAKE, PARKED, PIPELINE, TENANT, TURN, UPLOAD)
