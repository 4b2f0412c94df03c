"""The records from which a status document is made: engines as their workers reported them, and an idle queue."""

from datetime import timedelta
from typing import Any

from app import clock
from app.engines.overview import EngineInfo
from app.queue.item_counts import ItemCounts
from app.queue.overview import Overview

CALM = Overview(ItemCounts(0, 0, 0), 0, None, 1, steward=True, notifier=True, maintenance=True)
WRONG = {"code": "model_missing", "message": "The engine serves a, not b.", "remedy": "Correct it."}
MISSING = {"state": "down", "reason": "model_missing", "problems": [WRONG]}


def engine(**changes: Any) -> EngineInfo:
    """An engine that takes batch work, with changes."""
    usual: dict[str, Any] = {
        "name": "engine-0",
        "model": "toy",
        "mode": "attached",
        "state": "ready",
        "reason": "open",
        "signal": None,
        "value": None,
        "threshold": None,
        "since": clock.now() - timedelta(seconds=40),
        "slots": 32,
        "allowance": 30,
        "serves": ["toy"],
        "max_model_len": 8192,
        "version": "0.32.0",
        "scheduling_policy": "priority",
        "protection": "inside",
        "problems": [],
        "alive": True,
        "silent_seconds": 1.0,
        "held_seconds": 40.0,
    }
    return EngineInfo(**usual | changes)
