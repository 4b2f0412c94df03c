"""The versions of vLLM that the harvest scheduler supports, and what differs between them: one field for each difference.

`make engines` runs the facts that we rely on and a recorded trace in every version.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Differences:
    """What a version of vLLM has or calls otherwise than the newest one, whose values are the defaults."""

    second_queue: str = "kv_holding_waiting"  # the attribute with the waiting queue beside `waiting`
    slots: str = "max_num_active_reqs"  # the attribute with the most requests that may run
    second_queue_holds_blocks: bool = True  # False: it holds whatever vLLM has skipped once
    connectors: bool = True  # L2 may run beside a KV connector
    tells_freeable: bool = True  # has `_request_blocks_can_be_freed`
    marks_stale_output: bool = True  # after a preemption, `_preempt_request` takes care of the output in flight


NEWEST = Differences()
_BEFORE_31 = replace(
    NEWEST,
    second_queue="skipped_waiting",
    slots="max_num_running_reqs",
    second_queue_holds_blocks=False,
    connectors=False,
)
_BEFORE_30 = replace(_BEFORE_31, tells_freeable=False)
_BEFORE_27 = replace(_BEFORE_30, marks_stale_output=False)

SUPPORTED = {
    "0.26.0": _BEFORE_27,
    "0.27.0": _BEFORE_30,
    "0.27.1": _BEFORE_30,
    "0.28.0": _BEFORE_30,
    "0.29.0": _BEFORE_30,
    "0.30.0": _BEFORE_31,
    "0.31.0": NEWEST,
    "0.32.0": NEWEST,
    "0.33.0": NEWEST,
}


def public(version: str) -> str:
    """The version without its build: `0.32.0+cu130` is `0.32.0`."""
    return version.partition("+")[0]
