"""The statements that are constants of the packages' SQL modules, as PostgreSQL itself takes them."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import app

APP = Path(app.__file__).parent
_PLACEHOLDER = re.compile(r"%(%|\((\w+)\)[sbt]|[sbt])")
_VERB = re.compile(r"\s*(select|insert|update|delete|with)\b", re.IGNORECASE)


def sql_modules() -> Iterator[ModuleType]:
    """The packages' SQL modules."""
    for path in sorted(APP.rglob("*sql.py")):
        yield importlib.import_module(".".join(("app", *path.relative_to(APP).with_suffix("").parts)))


def written() -> Iterator[tuple[str, str]]:
    """The statements that are constants of the SQL modules, by name."""
    for module in sql_modules():
        for name, value in vars(module).items():
            if name[0].isupper() and name.isupper():
                for text in value.values() if isinstance(value, dict) else [value]:
                    if isinstance(text, str) and _VERB.match(text):
                        yield f"{module.__name__}.{name}", text


def numbered(text: str) -> str:
    """A statement of psycopg with PostgreSQL's own parameters."""
    places: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        return f"${places.setdefault(match[2] or str(len(places)), len(places) + 1)}"

    return _PLACEHOLDER.sub(place, text)
