"""How a program says that it cannot go on: what is wrong, and what to do about it, in two lines.

Every program of ours runs its `main` under `guarded`. What the user can mend is told apart from our own mistakes here, once.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from app import settings as configuration
from app.errors import StoreNotShared, StoreTaken
from app.sentences import ended
from app.settings import Settings, masked

# From the particular to the general: an error, what is said of it, and what to do.
_MENDABLE = (
    (
        "app.errors.AccountUnknown",
        "{}",
        "`slackwater account list` shows the accounts, `slackwater account create NAME` makes one.",
    ),
    ("app.errors.StoreTaken", "{}", StoreTaken.remedy),
    ("app.errors.StoreNotShared", "{}", StoreNotShared.remedy),
    ("app.errors.SlackwaterError", "{}", ""),
    (
        "app.engines.catalogue.CatalogueError",
        "{}",
        "Mend that place, or name another catalogue: SLACKWATER_MODELS_FILE.",
    ),
    (
        "app.engines.model_weights.ModelUnavailable",
        "{}",
        "`slackwater doctor` looks at everything that an engine needs.",
    ),
    ("app.optional_packages.NotInstalled", "{}", ""),  # it brings its own remedy
    ("psycopg.errors.UndefinedTable", "The database has no schema yet.", "Run `slackwater migrate`."),
    (
        "psycopg.OperationalError",
        "The database cannot be reached: {}",
        "Start `slackwater up` first, or set SLACKWATER_DATABASE_URL.",
    ),
    ("psycopg.Error", "The database cannot be used: {}", "`slackwater doctor` looks at it."),
    ("sqlalchemy.exc.SQLAlchemyError", "The database cannot be used: {}", "`slackwater doctor` looks at it."),
    ("alembic.util.CommandError", "The database cannot be migrated: {}", "`slackwater doctor` looks at it."),
)


class Failure(Exception):
    """Shown without a traceback; the process ends with exit code 1."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def guarded(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit with its code; a Failure is shown and exits with 1."""
    try:
        with explained():
            sys.exit(main())
    except Failure as failure:
        show(failure)
        sys.exit(1)


@contextmanager
def explained() -> Iterator[None]:
    """An error that the user can mend leaves this block as a Failure; any other as it is."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        failure = _explain(error)
        if failure is None:
            raise
        raise failure from error


def show(failure: Failure) -> None:
    """Print the two lines as they are; at SLACKWATER_LOG_LEVEL=debug the log has the traceback."""
    import structlog
    from rich.console import Console
    from rich.text import Text

    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    errors.print(Text.assemble(("error", "bold red"), " ", failure.problem.replace("\n", "\n      ")))
    if failure.remedy:
        errors.print(Text(f"      {failure.remedy}"))
    if structlog.is_configured():
        structlog.get_logger().debug("failed", exc_info=failure)


def _explain(error: BaseException) -> Failure | None:
    """What to tell the user; None for a mistake of ours."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, BaseExceptionGroup):
        causes = [_explain(inner) for inner in error.exceptions]
        return causes[0] if all(causes) else None
    if isinstance(error, ValidationError):
        return _of_setting(error)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_path(error)
    if _is(error, "sqlalchemy.exc.DBAPIError") and (origin := _explain(error.orig)):  # type: ignore[attr-defined]
        return origin
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    own = getattr(error, "remedy", "")
    return next((Failure(said.format(text), do or own) for name, said, do in _MENDABLE if _is(error, name)), None)


_UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.EEXIST, errno.ENOENT}


def _of_path(error: OSError) -> Failure:
    """What the operating system says, by the name of the setting where it is the data directory that cannot be written."""
    reason = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
    with suppress(ValidationError, TypeError):
        folder, place = configuration.load().data_dir.absolute(), Path(os.fsdecode(error.filename)).absolute()
        inside = (
            folder in place.parents and error.errno != errno.ENOENT
        )  # a file that is missing there is another matter
        if error.errno in _UNUSABLE and (inside or place in (folder, *folder.parents)):
            first = "Free space there" if error.errno == errno.ENOSPC else "Let this user write there"
            return Failure(
                f"The data directory {folder} cannot be written. {reason}",
                f"{first}, or name another directory with SLACKWATER_DATA_DIR.",
            )
    return Failure(reason)


def _is(error: BaseException, name: str) -> bool:
    """Whether the error is of this class. Imports nothing: whoever raised it has done so."""
    module, _, kind = name.rpartition(".")
    known = getattr(sys.modules.get(module), kind, ())
    return isinstance(error, known)


def _of_setting(error: ValidationError) -> Failure:
    """The first wrong setting by the name of its variable; its value only where that is no secret."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    field = Settings.model_fields.get(name) if error.title == Settings.__name__ else None
    if field is None:
        return Failure(f"{name}: {first['msg']}")
    rule = first["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
    meaning = ended(f"It means: {field.description}")
    if first["type"] == "string_pattern_mismatch":
        rule, meaning = f"must be {field.description}", ""
    got = "" if "Secret" in str(field.annotation) else f", got '{masked(first['input'])}'"
    return Failure(f"SLACKWATER_{name.upper()}: {rule}{got}", meaning)
