"""The first schema, a file for each subject, and its digest.

Until the first release there are no installations to upgrade, so a change of the schema is made here, in place. The digest then
differs, and a database that an older commit made is refused. Once it is released nothing here is changed, comments included: a
change is a new revision.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

SUBJECTS = (  # in the order of their foreign keys
    "accounts",
    "engines",
    "batches",
    "queue",
    "spend",
    "files",
    "webhooks",
    "pipelines",
    "conversations",
    "operators",
    "audit",
    "schema",
)


@cache
def scripts() -> tuple[str, ...]:
    """The SQL of each subject."""
    return tuple((Path(__file__).parent / f"{subject}.sql").read_text() for subject in SUBJECTS)


@cache
def digest() -> str:
    """Of all scripts. A database keeps that of the baseline that made it."""
    return sha256("".join(scripts()).encode()).hexdigest()
