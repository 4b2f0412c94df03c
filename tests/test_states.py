"""The state tables against what is made from them: constraints, guards, diagrams, and the schema around them."""

import re
from enum import StrEnum
from pathlib import Path
from typing import cast

import psycopg
import pytest

from app.states import MACHINES, Machine, Transition

ROOT = Path(__file__).parents[1]
PAGES = {ROOT / "docs" / "states.md": {machine.name for machine in MACHINES}}
BLOCK = re.compile(r"<!-- states:(\w+) -->\n(.*?)<!-- /states -->", re.DOTALL)
EACH_MACHINE = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
EACH_TRANSITION = pytest.mark.parametrize(
    ("machine", "transition"),
    [pytest.param(machine, t, id=f"{machine.name}-{t.verb}") for machine in MACHINES for t in machine.transitions],
)
CONSTRAINT = "select pg_get_constraintdef(oid) from pg_constraint where conrelid = %s::regclass and conname = %s"


def diagram(machine: Machine) -> str:
    """The machine as it stands in the page."""
    return f"```mermaid\n{machine.mermaid()}\n```\n"


def drawn(page: str) -> str:
    """The page with every diagram as the tables have it."""
    machines = {machine.name: machine for machine in MACHINES}
    return BLOCK.sub(lambda m: f"<!-- states:{m[1]} -->\n{diagram(machines[m[1]])}<!-- /states -->", page)


@EACH_MACHINE
def test_the_live_constraint_is_the_machines_check(machine: Machine, database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        table = machine.table or machine.name
        live = conn.execute(CONSTRAINT, [table, f"{table}_{machine.column}"]).fetchone()
        conn.execute(f"create table expected ({machine.column} text, constraint c check ({machine.check()}))".encode())
        expected = conn.execute(CONSTRAINT, ["expected", "c"]).fetchone()
    assert live is not None
    assert live == expected


@EACH_MACHINE
def test_the_column_begins_in_the_initial_state(machine: Machine, database_url: str) -> None:
    default = """select column_default from information_schema.columns
                 where table_schema = 'public' and table_name = %s and column_name = %s"""
    with psycopg.connect(database_url) as conn:
        assert conn.execute(default, [machine.table or machine.name, machine.column]).fetchone() == (
            f"'{machine.initial}'::text",
        )


@EACH_TRANSITION
def test_a_guard_is_true_in_exactly_the_sources(machine: Machine, transition: Transition, database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        for alias in ("", "row."):
            guard = machine.guard(transition.verb, alias)
            query = f"select row.{machine.column} from unnest(%s::text[]) as row ({machine.column}) where {guard}"
            rows = conn.execute(query.encode(), [list(machine.states)]).fetchall()
            assert {state for (state,) in rows} == set(transition.sources)


@EACH_MACHINE
def test_a_machine_is_whole(machine: Machine) -> None:
    """Each verb stands once, and every state is reached from those in which rows begin."""
    verbs = [t.verb for t in machine.transitions]
    assert len(verbs) == len(set(verbs))
    reached: set[StrEnum] = {machine.initial, *(state for _, state in machine.births)}
    for _ in machine.states:
        reached |= {t.target for t in machine.transitions if reached & set(t.sources)}
    assert reached == set(cast("list[StrEnum]", list(machine.states)))
    with pytest.raises(KeyError):
        machine.guard("no such verb")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_diagrams_are_those_of_the_tables(path: Path) -> None:
    page = path.read_text()
    assert sorted(name for name, _ in BLOCK.findall(page)) == sorted(PAGES[path])
    assert page == drawn(page), f"{path.name} is behind app/states.py; renew it: python -m tests.test_states"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(drawn(path.read_text()))
