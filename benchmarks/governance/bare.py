"""One of our processes without ledger and budgets, for comparison: `python -m benchmarks.governance.bare app.api`."""

import runpy
import sys
from collections.abc import Sequence
from typing import Any

from app.batches import batch_usage
from app.batches.validation import text_generation
from app.budgets import service as budgets
from app.budgets.queued import Steward
from app.metering import spend_labels
from app.metering.spend_labels import NO_SPEND_LABELS
from app.queue import settling_sql


async def _no_lines(*_: Any) -> "_NoLines":
    return _NoLines()


class _NoLines(dict[Any, None]):
    """No line has an id."""

    def __missing__(self, key: Any) -> None:
        return None


async def _no(*_: Any) -> bool:
    return False


def leave_out() -> None:
    """Replace what books, reserves and labels. Nothing is booked, so `spend check` would find fault with this installation."""
    spend_labels.read = lambda *_: NO_SPEND_LABELS
    batch_usage.line_ids = _no_lines  # type: ignore[assignment]
    settling_sql.USAGE = "select where false"
    text_generation._system_text = lambda item: "-"  # no prompt has a family
    budgets.any_exists = _no  # type: ignore[assignment]
    Steward.run = _no  # type: ignore[method-assign, assignment]


def main(arguments: Sequence[str]) -> None:
    """Run the module."""
    leave_out()
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
