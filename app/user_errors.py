"""Errors that the user can fix, shown without a traceback: the problem and, if there is one, its remedy.

Every program runs its `main` under `guarded`. This module decides which errors the user can fix; others are bugs.
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
from app.causes import cause
from app.errors import StoreNotShared, StoreTaken
from app.sentences import ended
from app.settings import Settings, masked
from app.wrong_values import wrong

# Error class, message and remedy; the most specific class comes first.
_USER_ERRORS = (
    (
        "app.errors.AccountUnknown",
        "{}",
        "`slackwater account list` shows the accounts, `slackwater account create NAME` creates one.",
    ),
    ("app.errors.StoreTaken", "{}", StoreTaken.remedy),
    ("app.errors.StoreNotShared", "{}", StoreNotShared.remedy),
    ("app.errors.SlackwaterError", "{}", ""),
    (
        "app.engines.catalogue.CatalogueError",
        "{}",
        "Correct it, or name another catalogue with SLACKWATER_MODELS_FILE.",
    ),
    ("app.engines.engine_list.EngineListError", "{}", ""),  # it has its own remedy
    (
        "app.engines.model_weights.ModelUnavailable",
        "{}",
        "`slackwater doctor` checks everything that an engine needs.",
    ),
    ("app.optional_packages.NotInstalled", "{}", ""),  # the error has its own remedy
    ("app.db.migrate.MigrationBlocked", "{}", ""),  # it has its own remedy
    ("psycopg.errors.UndefinedTable", "The database has no schema yet.", "Run `slackwater migrate`."),
    (
        "psycopg.OperationalError",
        "The database cannot be reached: {}",
        "Start it (`slackwater up` starts the embedded one), or correct SLACKWATER_DATABASE_URL.",
    ),
    ("psycopg.Error", "The database cannot be used: {}", "`slackwater doctor` checks it."),
    ("sqlalchemy.exc.SQLAlchemyError", "The database cannot be used: {}", "`slackwater doctor` checks it."),
    ("alembic.util.CommandError", "The database cannot be migrated: {}", "`slackwater doctor` checks it."),
)
_BUG = "psycopg.DataError"  # the database works; what we sent to it is wrong


class Failure(Exception):
    """An error that the user can fix. It is shown without a traceback, and the exit code is 1."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def guarded(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit with its code. A Failure is shown, and the exit code is 1."""
    from app import quick_start  # its import has an effect, which is for programs alone

    quick_start.finish()
    try:
        with explained():
            sys.exit(main())
    except Failure as failure:
        show(failure)
        sys.exit(1)


@contextmanager
def explained() -> Iterator[None]:
    """Convert errors that the user can fix to Failure. Other errors are not changed."""
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
    """Print the problem and the remedy. With SLACKWATER_LOG_LEVEL=debug, the traceback is logged."""
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
    """The Failure for an error that the user can fix; None for a bug."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, BaseExceptionGroup):
        causes = [_explain(inner) for inner in error.exceptions]
        return causes[0] if all(causes) else None
    if isinstance(error, ValidationError):
        return _of_setting(error)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_path(error)
    if _is(error, "sqlalchemy.exc.DBAPIError"):
        return _explain(error.orig)  # type: ignore[attr-defined]
    text = cause(error)
    own = getattr(error, "remedy", "")
    return next(
        (
            Failure(message.format(text), remedy or own)
            for name, message, remedy in _USER_ERRORS
            if _is(error, name) and not _is(error, _BUG)
        ),
        None,
    )


_UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.EEXIST, errno.ENOENT}


def _of_path(error: OSError) -> Failure:
    """What cannot be used, and why. If it is the data directory that is not writable, the message names its setting."""
    named = error.filename is not None
    reason = f"{os.fsdecode(error.filename)} cannot be used: {cause(error)}" if named else error.strerror or str(error)
    with suppress(ValidationError, TypeError):
        folder, place = configuration.load().data_dir.absolute(), Path(os.fsdecode(error.filename)).absolute()
        # A file that is missing inside the data directory does not mean that the directory is not writable.
        inside = folder in place.parents and error.errno != errno.ENOENT
        if error.errno in _UNUSABLE and (inside or place in (folder, *folder.parents)):
            first = "Free space there" if error.errno == errno.ENOSPC else "Let this user write there"
            return Failure(
                f"The data directory {folder} cannot be written: {reason}",
                f"{first}, or name another directory with SLACKWATER_DATA_DIR.",
            )
    return Failure(reason, "Correct the path, or let this user use it." if named else "")


def _is(error: BaseException, name: str) -> bool:
    """Whether the error is of this class. Imports nothing, because the code that raised it has imported the class."""
    module, _, kind = name.rpartition(".")
    known = getattr(sys.modules.get(module), kind, ())
    return isinstance(error, known)


def _of_setting(error: ValidationError) -> Failure:
    """The first wrong setting, by its variable's name. Its value is shown unless it is a secret."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    field = Settings.model_fields.get(name) if error.title == Settings.__name__ else None
    if field is None:
        return Failure(f"{name}: {wrong(first, secret=True)}")
    rule = wrong(first, secret=True, of=field)
    meaning = ended(f"It means: {field.description}")
    if first["type"] == "string_pattern_mismatch":
        rule, meaning = f"must be {field.description}", ""
    got = "" if "Secret" in str(field.annotation) else f", got '{masked(first['input'])}'"
    return Failure(f"SLACKWATER_{name.upper()}: {rule}{got}", meaning)
