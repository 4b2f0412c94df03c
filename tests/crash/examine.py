"""Checks the responses to polls."""

import hashlib
import json
from typing import Any

from tests.crash.engines import REFUSAL
from tests.crash.history import Batch, History

CANCELLED = "was cancelled before"
GIVEN_UP = "it was given up"  # no item of this test kills a worker
EXPIRED = "deadline passed before"


def examine_pending(history: History, batch: Batch, result: dict[str, Any], *, was_final: bool, known: int) -> None:
    """Check the response for a pending batch: progress never decreases. `was_final`, `known`: before the poll was sent."""
    progress = result["progress"]
    done = progress["succeeded"] + progress["failed"]
    if was_final:
        history.wrong("went_back", f"{batch.key} was final and is {result['status']} now")
    if done < known:
        history.wrong("went_back", f"{batch.key} had {known} results and has {done} now")
    if progress["total"] != len(batch.prompts) or done > progress["total"]:
        history.wrong("unaccounted", f"{batch.key} of {len(batch.prompts)} reports {progress}")
    batch.done = max(batch.done, done)


def examine_final(history: History, batch: Batch, responses: list[dict[str, Any]]) -> None:
    """Check the response for a final batch: every item once, in order, with its own result, and never changed."""
    digest = hashlib.sha256(json.dumps(responses).encode()).hexdigest()
    if batch.final is not None:
        if digest != batch.final:
            history.wrong("went_back", f"the final answer of {batch.key} has changed")
        return
    batch.final, batch.done = digest, len(batch.prompts)
    if len(responses) != len(batch.prompts):
        missing = len(batch.prompts) - len(responses)
        what = "lost" if missing > 0 else "duplicated"
        history.wrong(what, f"{batch.key} answers {len(responses)} of {len(batch.prompts)}", abs(missing))
    for seq, response in enumerate(responses[: len(batch.prompts)]):
        _examine_item(history, batch, seq, response)


def _examine_item(history: History, batch: Batch, seq: int, response: dict[str, Any]) -> None:
    prompt = batch.prompts[seq]
    where = f"{batch.key} {seq} ({prompt}): {str(response)[:300]}"
    if response["id"] != seq or response["external_reference"] != prompt:
        history.wrong("wrongly_ordered", where)
    elif response["success"]:
        if batch.refused(seq):
            history.wrong("wrong_kind", where)
        elif response["result"]["response"] != f"echo: {prompt}":
            history.wrong("wrongly_ordered", where)
    elif not _may_fail(batch, seq, str(response["error"])):
        history.wrong("wrong_kind", where)


def _may_fail(batch: Batch, seq: int, error: str) -> bool:
    return (
        GIVEN_UP in error  # the verdict counts these
        or (batch.refused(seq) and REFUSAL in error)
        or ("cancel" in batch.asked and CANCELLED in error)
        or (batch.window is not None and EXPIRED in error)
    )
