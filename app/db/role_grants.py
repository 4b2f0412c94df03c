"""What each part of an installation may do with which table: the least that its statements need. Pure.

`r` read, `a` add rows, `w` change, `d` delete. Locking a row takes the right to change one of its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PRIVILEGES = {"r": "select", "a": "insert", "w": "update", "d": "delete"}
ENDPOINT_SECRETS = ("secret", "previous_secret", "signing_key", "previous_signing_key")
# Of an endpoint, what changes by itself: never its URL, its secrets or what it subscribes to.
_HEALTH = (
    "state",
    "reason",
    "modified_at",
    "failures",
    "failing_since",
    "open_until",
    "warned",
    "hinted_at",
    "paced_until",
)
# Of an endpoint, what decides whether an event is for it: not its name, its URL or its secrets.
_SUBSCRIBED = ("endpoint_id", "tenant_id", "model", "kinds", "state", "queue_id", "format", "tags", "metadata")


@dataclass(frozen=True, slots=True)
class RoleGrants:
    """The grants of one role. `tables`: rights by the name of a table. `hidden`: columns of these that it may not use.

    `columns`: tables of which it may use some columns only, by right. `functions`: those that not everybody may call.
    `sees_sessions`: it reads who is connected.
    """

    purpose: str
    tables: Mapping[str, str]
    hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    sees_sessions: bool = False


BROKER = "sw_broker"  # owns the queues of the broker in the database, which steward, maintenance and notifier share
STEWARD = "sw_steward"  # owns the two tables whose days it creates and drops
REPORT = "sw_report"  # may be bound to some accounts
DAILY = ("item_payload", "item_result")

_QUEUE = {
    **dict.fromkeys(("batch", "item_payload", "batch_phase", "chunk", "sched"), "rawd"),
    **dict.fromkeys(("item_result", "batch_delta", "batch_error", "answer_length"), "rawd"),
    **dict.fromkeys(("event", "delivery", "response_events", "removed_counts", "line"), "rawd"),
    **dict.fromkeys(("account_kek", "batch_key", "shredding"), "rawd"),
    **dict.fromkeys(("session", "turn", "turn_key"), "rawd"),
    **dict.fromkeys(
        ("usage", "usage_day", "usage_writer", "dropped_usage", "latency_minute", "session_growth"), "rawd"
    ),
    **dict.fromkeys(("budget", "reservation", "quota", "quota_reached", "request_sample", "change"), "rawd"),
    **dict.fromkeys(
        ("file", "file_batch", "upload", "upload_part", "object_store", "worker", "engine", "pool"), "rawd"
    ),
    **dict.fromkeys(("attempt", "decision", "engine_sample", "engine_minute", "pace", "ledger_check"), "rawd"),
    **dict.fromkeys(("pipeline", "stage", "parked", "handoff", "gather", "dependency"), "rawd"),
    **dict.fromkeys(("pool_status", "duty"), "r"),
}
_RECORDS = {"audit": "ra", "audit_pending": "ra", "audit_seal": "r", "audit_checkpoint": "r"}
_READS_RECORDS = dict.fromkeys(("audit", "audit_seal", "audit_checkpoint"), "r")
_SEALS = {"audit": "rad", "audit_pending": "rawd", "audit_seal": "rad", "audit_checkpoint": "rad"}
_SERVES_CALLERS = {**_QUEUE, "tenant": "rawd", "api_key": "raw", "key_usage": "raw", "endpoint": "raw", "policy": "ra"}

GRANTS: Mapping[str, RoleGrants] = {
    "sw_api": RoleGrants(
        "the API",
        {**_SERVES_CALLERS, **_RECORDS},
        functions=("use_operator_token",),
        sees_sessions=True,
    ),
    "sw_console": RoleGrants(
        "the console",
        {**_SERVES_CALLERS, **_RECORDS, "console_login": "rd", "console_session": "rawd"},
        sees_sessions=True,
    ),
    "sw_worker": RoleGrants(
        "GPU workers",
        {
            **dict.fromkeys(("chunk", "worker"), "rawd"),
            **dict.fromkeys(("sched", "engine", "pool", "object_store"), "raw"),
            **dict.fromkeys(("batch", "item_payload", "pace", "pool_status", "tenant"), "r"),
            "batch_key": "r",
            **dict.fromkeys(("item_result", "response_events", "change", "decision"), "rad"),
            **dict.fromkeys(("engine_sample", "engine_minute"), "rad"),
            **dict.fromkeys(("batch_delta", "batch_error", "event", "delivery"), "ra"),
            **dict.fromkeys(("sched_delta", "handoff"), "a"),
        },
        # A new delivery locks its endpoint against removal, which takes the right to change some column. A worker notes a data
        # key that it cannot unwrap.
        columns={"endpoint": {"r": _SUBSCRIBED, "w": ("hinted_at",)}, "batch_key": {"w": ("failed_at", "failure")}},
    ),
    STEWARD: RoleGrants(
        "the steward and maintenance workers",
        {
            **_QUEUE,
            **_SEALS,
            "object_removal": "rad",
            **dict.fromkeys(("pool_status", "duty"), "raw"),
            "sched_delta": "rwd",
            "tenant": "rd",
            "policy": "r",
            "key_usage": "rd",
            "endpoint": "rd",
            "api_key": "d",
        },
        hidden={"endpoint": ENDPOINT_SECRETS},
        columns={
            "api_key": {"r": ("key_id", "tenant_id", "revoked_at", "expires_at")},
            "endpoint": {"w": _HEALTH},
            "tenant": {"w": ("has_quota",)},  # the right to lock an account
        },
        sees_sessions=True,
    ),
    "sw_notifier": RoleGrants(
        "the notifier",
        {
            **{"delivery": "raw", "attempt": "ra", "endpoint": "r", "event": "ra", "change": "rad"},
            **dict.fromkeys(("batch", "batch_key", "item_payload", "item_result", "tenant"), "r"),
            "object_store": "raw",
            "policy": "r",
            **dict.fromkeys(("audit", "audit_pending"), "a"),
        },
        columns={"audit": {"r": ("audit_id",)}, "endpoint": {"w": _HEALTH}},  # of audit, the row that it adds
    ),
    REPORT: RoleGrants(
        "reports: usage, budgets and the audit log with its seals, read only",
        {
            **dict.fromkeys(("usage", "usage_day", "line", "budget", "tenant", "ledger_check"), "r"),
            **_READS_RECORDS,
        },
    ),
}

# What is of an account in the tables that reports read. `{accounts}` stands for an array of the names of accounts. No seal or
# checkpoint of the installation's own chain is of any account.
_BY_TENANT = "tenant_id in (select t.tenant_id from tenant t)"  # of the accounts that the role sees there
_BY_LINE = "line_id in (select l.line_id from line l)"
ROWS_OF_ACCOUNTS: Mapping[str, str] = {
    "tenant": "account_id = any({accounts})",
    **dict.fromkeys(("audit", "audit_seal", "audit_checkpoint"), "account = any({accounts})"),
    **dict.fromkeys(("line", "budget"), _BY_TENANT),
    **dict.fromkeys(("usage", "usage_day"), _BY_LINE),
}
