"""Whether the loops for which a process lives still turn. Whoever watches over it starts it anew if one of them stands still:
`slackwater up` by a file's time, others by a page.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app import clock

STILL_SECONDS = 300.0  # no turn takes as long, whatever the database has to do for it
FILE = "SLACKWATER_LIFE_SIGNS"  # the variable that names the file

_turned_at: dict[object, float] = {}


@contextmanager
def turning() -> Iterator[Callable[[], None]]:
    """While the block runs, a loop must call, at each of its turns, what it gets."""
    loop = object()

    def turn() -> None:
        _turned_at[loop] = clock.monotonic()
        _sign()

    turn()
    try:
        yield turn
    finally:
        del _turned_at[loop]


def still() -> bool:
    """Whether a loop of this process stands still."""
    return any(clock.monotonic() - at > STILL_SECONDS for at in _turned_at.values())


def _sign() -> None:
    """Give whoever has started this process a sign, unless one of its loops stands still."""
    file = os.environ.get(FILE)
    if file and not still():
        with suppress(OSError):
            Path(file).touch(mode=0o600)
