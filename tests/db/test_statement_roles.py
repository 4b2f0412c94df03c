"""Every statement as every database role. PostgreSQL checks rights as it begins a statement, so that planning it is enough."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from app.db.role_grants import GRANTS, PRIVILEGES, STEWARD, RoleGrants
from app.queue import partitions, partitions_sql
from tests.db.built_statements import built, unknown
from tests.db.written_statements import numbered, sql_modules, written

_DAY = re.compile(r"_\d{8}$")
_MODIFIES = {"Insert": "a", "Update": "w", "Delete": "d"}


class Statement(NamedTuple):
    """A statement of a package. `uses`: rights by table, of what its plan touches."""

    name: str
    text: str
    uses: frozenset[tuple[str, str]]


def planned(conn: psycopg.Connection[Any], text: str) -> list[dict[str, Any]]:
    """The plan of a statement for any parameters. Raises psycopg.Error."""
    with conn.transaction(force_rollback=True):
        row = conn.execute(f"explain (generic_plan, format json) {numbered(text)}".encode()).fetchone()
    assert row is not None
    return [row[0][0]["Plan"]]


def uses(plans: list[dict[str, Any]], tables: set[str]) -> Iterator[tuple[str, str]]:
    """The tables of a plan, with the right that each takes. A day's partition counts as its table."""
    for plan in plans:
        if found := plan.get("Relation Name"):
            table = _DAY.sub("", found)
            if table in tables:
                yield table, _MODIFIES.get(plan.get("Operation", ""), "r")
        yield from uses(plan.get("Plans", []), tables)


def may(grants: RoleGrants, table: str, right: str) -> bool:
    """Whether a role has a right, of all columns or of some."""
    return right in grants.tables.get(table, "") or right in grants.columns.get(table, {})


def refused(conn: psycopg.Connection[Any], text: str) -> str | None:
    """The table that the role has no right to. None: the statement is allowed."""
    try:
        planned(conn, text)
    except psycopg.errors.InsufficientPrivilege as error:
        return str(error).split("\n")[0].rpartition(" ")[2]
    return None


def test_every_statement_is_refused_to_each_role_that_has_no_right_to_it_and_to_no_other(
    conn: psycopg.Connection[Any],
) -> None:
    owned = "select relname from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace"
    tables = {row[0] for row in conn.execute(owned)}
    statements, unplanned = [], []
    for name, text in (*written(), *built()):
        try:
            statements.append(Statement(name, text, frozenset(uses(planned(conn, text), tables))))
        except psycopg.Error as error:
            unplanned.append(f"{name}: {str(error).splitlines()[0]}")
    print(f"{len(statements)} statements as {len(GRANTS)} roles; not planned alone: {unplanned}")
    assert len(statements) > 450
    assert len(unplanned) < 10, unplanned  # their callers fill them in, or name types
    for role, grants in GRANTS.items():
        conn.execute(f"set role {role}".encode())
        for statement in statements:
            table, lacking = refused(conn, statement.text), {use for use in statement.uses if not may(grants, *use)}
            if table is None:
                assert not lacking, f"{statement.name} runs as {role}, which may not: {lacking}"
            else:
                whole = grants.tables.get(table) == "".join(PRIVILEGES) and table not in grants.hidden
                assert not whole, f"{statement.name} is refused to {role}, which may do everything with {table}"
        conn.execute("reset role")


def test_each_function_that_builds_a_statement_is_tried_with_its_arguments() -> None:
    assert unknown(sql_modules()) == set()


async def test_each_role_has_the_rights_to_a_new_day_that_it_has_to_all_days(
    conn: psycopg.Connection[Any], database_url: str
) -> None:
    assert conn.execute(partitions_sql.LACKING).fetchall() == []
    async with await psycopg.AsyncConnection.connect(database_url) as steward:
        await steward.execute(f"set role {STEWARD}".encode())
        created = await partitions.create(steward, days_ahead=9)
    assert created
    assert conn.execute(partitions_sql.LACKING).fetchall() == []
    conn.execute("set role sw_worker")
    for day in created:
        assert conn.execute(f"select from {day}".encode()).fetchone() is None
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(f"delete from {created[0]}".encode())
