"""How the OpenAPI document is fuzzed: reproducibly, without a database of examples, and without waiting for events."""

import re
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings

from app.api.workers_ai.events import MOST_WAIT_SECONDS


def quietly(examples: int) -> settings:
    """The same cases in every run, this many for each operation at most."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Nobody waits for events that do not come."""
    wait = str(case.query.get("wait")) if isinstance(case.query, dict) else ""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", wait) and 0 < float(wait) <= MOST_WAIT_SECONDS:
        case.query["wait"] = 0.01
