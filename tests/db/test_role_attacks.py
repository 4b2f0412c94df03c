"""Attacks as each database role: whatever docs/access.md says that a part may not do, PostgreSQL refuses."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from app.access import operator_tokens
from app.access.roles import Role
from app.db.pool import Database
from app.db.role_grants import BROKER

ROOT = Path(__file__).parents[2]
PEPPER = b"a pepper that is at least 32 bytes long"
READ_OPERATORS = ("select * from operator_token", "select secret_hash from operator_token")
MAKE_OPERATORS = ("insert into operator_token default values",)
CHANGE_OPERATORS = (
    "update operator_token set role = 'operator'",
    "update operator_token set revoked_at = null",
    "update operator_token set expires_at = now() + interval '9 days'",
    "update operator_token set secret_hash = ''",
    "update operator_token set last_used_at = now()",
    "delete from operator_token",
)
READ_SESSIONS = ("select * from console_session", "select * from console_login")
CHANGE_AUDIT = (
    "update audit set body = ''",
    "update audit_seal set hash = ''",
    "update audit_checkpoint set body = ''",
    "truncate audit",
)
DELETE_AUDIT = ("delete from audit", "delete from audit_seal", "delete from audit_checkpoint")
READ_KEYS = ("select * from api_key", "select secret_hash from api_key")
MAKE_KEYS = ("insert into api_key default values", "update api_key set restore = true")
READ_RECORDS = ("select * from audit", "select * from audit_seal", "select body from audit")
CHANGE_BATCHES = ("update batch set state = 'succeeded'", "delete from batch")
CHANGE_ACCOUNTS = (
    "update tenant set weight = 1000",
    "update tenant set state = 'active'",
    "insert into tenant default values",
)
CHANGE_RECEIVERS = (
    "update endpoint set url = 'http://elsewhere'",
    "update endpoint set secret = ''",
    "update endpoint set signing_key = ''",
    "update endpoint set previous_signing_key = ''",
    "insert into endpoint default values",
)

# In the words of the table of docs/access.md.
MAY_NOT: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sw_api": {
        "read sessions of the console": READ_SESSIONS,
        "change or delete audit rows": CHANGE_AUDIT + DELETE_AUDIT,
        "read, make or change operators' tokens": READ_OPERATORS + MAKE_OPERATORS + CHANGE_OPERATORS,
    },
    "sw_worker": {
        "read keys, tokens, sessions, audit, usage, the URL or secret of a webhook": (
            *READ_KEYS, *READ_OPERATORS, *READ_SESSIONS, *READ_RECORDS, "select * from usage", "select * from line",
            "select * from endpoint", "select url from endpoint", "select secret from endpoint",
        ),
        "change batches, accounts, payloads, webhooks, or the data key of a batch": (
            *CHANGE_BATCHES, *CHANGE_ACCOUNTS, *CHANGE_RECEIVERS, "update item_payload set body = ''", "delete from item_payload",
            "update item_result set ok = 1", "update batch_key set wrapped = ''", "update batch_key set only_vaults = true",
            "delete from batch_key", "insert into policy default values",
        ),
    },
    "sw_steward": {
        "read secrets of keys and webhooks, operators' tokens, sessions": (
            *READ_KEYS, *READ_OPERATORS, *READ_SESSIONS, "select secret from endpoint", "select signing_key from endpoint",
            "select previous_signing_key from endpoint",
        ),
        "change audit rows": CHANGE_AUDIT,
        "make keys or policies": (*MAKE_KEYS, "insert into policy default values"),
        "change accounts, or where a webhook goes": CHANGE_ACCOUNTS + CHANGE_RECEIVERS,
    },
    "sw_notifier": {
        "read keys, operators' tokens, sessions, rows of the audit log": (
            *READ_KEYS, *READ_OPERATORS, *READ_SESSIONS, *READ_RECORDS,
        ),
        "change batches, accounts, or where a webhook goes": (
            *CHANGE_BATCHES, *CHANGE_ACCOUNTS, *CHANGE_RECEIVERS, "delete from endpoint",
        ),
    },
    "sw_console": {
        "read, make or change operators' tokens": READ_OPERATORS + MAKE_OPERATORS + CHANGE_OPERATORS,
        "change or delete audit rows": CHANGE_AUDIT + DELETE_AUDIT,
    },
    "sw_report": {
        "anything but read usage, budgets, accounts and the audit log with its seals; of these only the accounts in "
        "`SLACKWATER_REPORT_ACCOUNTS`": (
            *READ_KEYS, *READ_OPERATORS, *READ_SESSIONS, *CHANGE_AUDIT, *DELETE_AUDIT, *CHANGE_BATCHES, *CHANGE_ACCOUNTS,
            *CHANGE_RECEIVERS, "select * from item_payload", "select * from item_result", "select * from endpoint",
            "delete from usage",
        ),
    },
    BROKER: {"": ("select * from batch", "select * from tenant", *READ_KEYS, *READ_OPERATORS)},
}  # fmt: skip


def is_refused(conn: psycopg.Connection[Any], statement: str) -> bool:
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.Error:
        return False
    return False


def test_the_documentation_says_what_is_tried_here() -> None:
    table = re.findall(
        r"^\| .* \| `postgresql://(sw_\w+):.*` \| (.*) \|$", (ROOT / "docs/access.md").read_text(), re.MULTILINE
    )
    assert dict(table) == {role: "; ".join(claims) for role, claims in MAY_NOT.items() if role != BROKER}


def test_no_role_does_what_the_documentation_says_that_it_may_not(conn: psycopg.Connection[Any]) -> None:
    allowed = []
    for role, claims in MAY_NOT.items():
        conn.execute(f"set role {role}".encode())
        allowed += [
            (role, statement)
            for statements in claims.values()
            for statement in statements
            if not is_refused(conn, statement)
        ]
        conn.execute("reset role")
    assert allowed == []


async def test_the_api_recognizes_an_operator_without_any_right_to_the_tokens(
    conn: psycopg.Connection[Any], database_url: str
) -> None:
    async with Database(database_url, size=1) as database, database.transaction() as owner:
        lifetime = timedelta(days=1)
        token_id, token = await operator_tokens.create(owner, PEPPER, "ann", Role.AUDITOR, lifetime, "test")
    async with Database(database_url, size=1) as database, database.transaction() as api:
        await api.execute("set role sw_api")
        known = await operator_tokens.authenticate(api, PEPPER, token)
        assert known is not None
        assert known.role is Role.AUDITOR
        assert await operator_tokens.authenticate(api, PEPPER, token + "x") is None
        await api.execute("reset role")
        assert await operator_tokens.revoke(api, token_id)
        await api.execute("set role sw_api")
        assert await operator_tokens.authenticate(api, PEPPER, token) is None
    conn.execute("set role sw_console")
    assert is_refused(conn, "select use_operator_token('', '{}', '')")
