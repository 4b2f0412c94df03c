"""The problems of an installation's parts: away, or perhaps about to come back to a database that has just started. Pure."""

from collections.abc import Iterator

from app.engines.adoption import EngineProblem
from app.quantities import duration
from app.queue.overview import Overview

LEAST_ROOM = 64 << 20  # bytes free for objects, and for the database; a file of a batch may have 100 MB and more
YOUNG_SECONDS = 60.0  # so long after the start of the database, parts and workers may still be about to connect to it


def restarted(part: str) -> str:
    """The remedy of a part, or of a GPU worker, that is away."""
    return f"slackwater up restarts it by itself, see slackwater logs {part}; without up, start one: slackwater {part}."


_NO_DATABASE = EngineProblem(
    "database_away", "The database does not answer.", "Start it, or correct SLACKWATER_DATABASE_URL."
)
_NO_OWN_DATABASE = EngineProblem(
    "database_away",
    "The database does not answer.",
    "Wait: it is that of slackwater up, which starts it again. If it stays away: slackwater logs up.",
)
_NO_STEWARD = EngineProblem("steward_away", "No steward leads: batches are not ended.", restarted("steward"))
_NO_NOTIFIER = EngineProblem("notifier_away", "No notifier runs: webhooks are not delivered.", restarted("notifier"))
_NO_MAINTENANCE = EngineProblem(
    "maintenance_away", "No maintenance worker runs: nothing old is removed.", restarted("maintenance")
)


def database_away(*, embedded: bool) -> EngineProblem:
    """The problem of a database that does not answer. `embedded`: it is the one that `slackwater up` runs."""
    return _NO_OWN_DATABASE if embedded else _NO_DATABASE


def database_slow(seconds: float, age: float | None) -> EngineProblem:
    """The problem of a database that has not answered a look for so long. `age`: how old what was last read is; None: nothing is
    known.
    """
    known = "engines, parts and queue are not known now" if age is None else f"what is said here is {duration(age)} old"
    return EngineProblem(
        "database_slow",
        f"The database took longer than {duration(seconds)} to say how things are: {known}.",
        "Wait: it or its machine is busy, and other requests may be answered. If it stays so, see what it runs: docs/operate.md.",
    )


def store_full(room: int) -> EngineProblem:
    """The problem of a folder of objects with `room` bytes left."""
    return EngineProblem(
        "store_full",
        f"The object store has {room / 1e6:.1f} MB left: files and large results are refused with 507, and not stored.",
        "Free space there, or give it a larger disk: docs/operate.md.",
    )


def database_full(room: int) -> EngineProblem:
    """The problem of an embedded database with `room` bytes left on its disk."""
    return EngineProblem(
        "database_full",
        f"The disk of the database has {room / 1e6:.1f} MB left: without room nothing can be submitted, and no result is stored.",
        "Free space there, or give it a larger disk: docs/operate.md.",
    )


def young(overview: Overview) -> float | None:
    """For how many seconds the database has run, if it has just started; None: it has run for longer."""
    seconds = overview.database_seconds
    return seconds if seconds is not None and seconds < YOUNG_SECONDS else None


def of_parts(overview: Overview, since: float | None) -> Iterator[tuple[EngineProblem, bool]]:
    """The problems of parts that are away, and whether each is an error. `since`: as `young` says."""
    for part, who, runs, problem in (
        ("steward", "The steward", overview.steward, _NO_STEWARD),
        ("notifier", "The notifier", overview.notifier, _NO_NOTIFIER),
        ("maintenance", "The maintenance worker", overview.maintenance, _NO_MAINTENANCE),
    ):
        if not runs:
            yield (problem, True) if since is None else (_not_back(problem.code, who, part, since), False)


def _not_back(code: str, who: str, part: str, since: float) -> EngineProblem:
    """A part that is away, so soon after the start of the database that it may only have to connect to it."""
    message = f"{who} is not connected to the database, which started {duration(since)} ago."
    return EngineProblem(code, message, f"Wait: it connects by itself. If it does not: slackwater logs {part}.")
