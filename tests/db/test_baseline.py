"""Claims about the baseline: it is the schema of the model (`tables.py` in each domain), whole."""

from importlib import import_module
from pathlib import Path

import psycopg
from sqlalchemy import Engine, NullPool, create_engine, text

import app
from app.db import migrate
from app.db.metadata import metadata

# Of both schemas; whatever is in only one of them is a difference. Days of results are no part of the model.
LOOKS = {
    "columns": """
select c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
       pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition""",
    "constraints": """
select c.relname, k.conname, pg_get_constraintdef(k.oid), k.convalidated
from pg_constraint k join pg_class c on c.oid = k.conrelid
where k.connamespace = current_schema()::regnamespace and not c.relispartition""",
    "indexes": """
select c.relname, i.indisvalid, replace(pg_get_indexdef(i.indexrelid), current_schema() || '.', '')
from pg_index i join pg_class c on c.oid = i.indrelid
where c.relnamespace = current_schema()::regnamespace and not c.relispartition and c.relkind in ('r', 'p')""",
    "storage": """
select c.relname, c.relkind, array_to_string(c.reloptions, ', '), pg_get_partkeydef(c.oid)
from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition""",
}

CHANGES = {
    "columns": "comment on column batch.run is 'something else'",
    "constraints": "alter table chunk drop constraint chunk_state",
    "indexes": "drop index batch_open",
    "storage": "alter table chunk reset (fillfactor)",
}


def model(url: str) -> Engine:
    """Create all tables of the model in a schema of their own. The engine's sessions see it first."""
    root = Path(app.__file__).parent
    for path in root.glob("*/*table*.py"):
        if " = Table(" in path.read_text():
            import_module(".".join(("app", *path.relative_to(root).with_suffix("").parts)))
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(url, options="-c search_path=model,public"),
        poolclass=NullPool,
    )
    with engine.begin() as connection:
        connection.execute(text("create schema model"))
        metadata.create_all(connection, checkfirst=False)
    return engine


def differences(tables: Engine, migrated: psycopg.Connection) -> dict[str, list[tuple[object, ...]]]:
    """What is only in the migrated schema, or only in the model."""
    found = {}
    with tables.connect() as connection:
        for name, look in LOOKS.items():
            here = {tuple(row) for row in connection.exec_driver_sql(look)}
            there = {row for row in migrated.execute(look.encode()).fetchall() if row[0] != "alembic_version"}
            assert here
            found[name] = sorted(here ^ there, key=repr)
    return found


def test_the_baseline_is_the_schema_of_the_model_and_any_difference_is_seen(database_url: str) -> None:
    """Columns with their defaults and comments, constraints, indexes, and how they are stored."""
    tables = model(database_url)
    with psycopg.connect(database_url) as conn:
        assert differences(tables, conn) == {name: [] for name in LOOKS}
        for name, change in CHANGES.items():
            conn.execute(change.encode())
            assert {look for look, found in differences(tables, conn).items() if found} == {name}
            conn.rollback()


def test_to_upgrade_again_changes_nothing(database_url: str) -> None:
    before = migrate.revisions(database_url)
    migrate.upgrade(database_url)
    assert migrate.revisions(database_url) == before == (before[1], before[1])
