"""Which database objects belong to the schema that Alembic compares."""

from typing import Any


def is_schema(name: str | None, kind: str, parents: Any) -> bool:
    """False for daily partitions: the steward makes and drops them at run time."""
    return not (kind == "table" and name is not None and name.startswith(("item_payload_", "item_result_")))
