"""Arms `three_models` and `one_model`: a pipeline of three stages against batches that a caller chains by hand.

The engines are fakes with fixed delays; API, workers, steward and PostgreSQL are the real processes. With a model and an engine
for each stage, a pipeline uses all engines at once. With one model the engine is full in either case, so the pipeline saves only
the pauses between the batches, and pays for handing on.
"""

import random
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from openai import OpenAI

from benchmarks.harness import Testbed, open_testbed, say
from benchmarks.pipelines.callers import Outcome, Step, Work, as_pipeline, by_hand
from benchmarks.pipelines.served import TimedModel, served
from benchmarks.prompts import WORDS

POLL_SECONDS = 5.0
SLOTS = 48  # of each of three engines
SLOTS_OF_ONE = 144
ENGINE_SECONDS = 0.4  # of a request
_PROMPTS = (
    "Which topic has {{item.custom_id}}?\n{{item.text}}",
    "Is that the topic of {{item.custom_id}}?\n{{item.text}}\n{{text}}",
    "Put it in one sentence.\n{{text}}",
)
_CALLERS: dict[str, Callable[[OpenAI, Work], Outcome]] = {"pipeline": as_pipeline, "by_hand": by_hand}


def three_models(*, items: int = 6_000, pairs: int = 1, poll_seconds: float = POLL_SECONDS) -> dict[str, Any]:
    """`three_models_speedup`: the seconds that the caller needs who chains batches, to those of the pipeline."""
    names = ["first", "second", "third"]
    models = [TimedModel(name, SLOTS, ENGINE_SECONDS) for name in names]
    return _speedup("three_models", models, names, items, pairs, poll_seconds)


def one_model(*, items: int = 6_000, pairs: int = 2, poll_seconds: float = POLL_SECONDS) -> dict[str, Any]:
    """`one_model_speedup`: the same where all stages have the same model, whose one engine is as large as the three together."""
    models = [TimedModel("only", SLOTS_OF_ONE, ENGINE_SECONDS)]
    return _speedup("one_model", models, ["only"] * len(_PROMPTS), items, pairs, poll_seconds)


def _speedup(
    arm: str, models: Sequence[TimedModel], of_stages: Sequence[str], items: int, pairs: int, poll_seconds: float
) -> dict[str, Any]:
    """The figures of an arm. The order alternates from pair to pair; each run has a fresh installation."""
    seconds: dict[str, list[float]] = {name: [] for name in _CALLERS}
    with open_testbed("") as testbed:
        steps = [
            Step(f"stage-{n}", model, [{"role": "user", "content": prompt}])
            for n, (model, prompt) in enumerate(zip(of_stages, _PROMPTS, strict=True), 1)
        ]
        work = Work(lines(items), steps, poll_seconds, testbed.folder)
        for pair in range(pairs):
            said = []
            for name in list(_CALLERS)[:: 1 if pair % 2 == 0 else -1]:
                outcome = _run(testbed, models, _CALLERS[name], work)
                seconds[name].append(outcome.seconds)
                said.append(outcome.texts)
                say(f"{arm}: {items} items, {len(steps)} stages, {name}: {outcome.seconds:.1f} s")
            if said[0] != said[1]:
                raise SystemExit("the two callers have different answers")
    ratios = [hand / piped for hand, piped in zip(seconds["by_hand"], seconds["pipeline"], strict=True)]
    least = items * len(steps) / sum(model.slots for model in models) * ENGINE_SECONDS
    return {
        f"{arm}_speedup": round(median(ratios), 3),
        f"{arm}_speedup_samples": [round(ratio, 3) for ratio in ratios],
        f"{arm}_pipeline_s": round(median(seconds["pipeline"]), 1),
        f"{arm}_by_hand_s": round(median(seconds["by_hand"]), 1),
        f"{arm}_full_engines_s": round(least, 1),  # if every slot of every engine were always in use
        f"{arm}_items": items,
        f"{arm}_poll_seconds": poll_seconds,
    }


def _run(
    testbed: Testbed, models: Sequence[TimedModel], call: Callable[[OpenAI, Work], Outcome], work: Work
) -> Outcome:
    with served(testbed, models) as installation:
        outcome = call(installation.client, work)
    testbed.clear()
    return outcome


def lines(count: int, words: int = 12) -> list[dict[str, str]]:
    """Lines of an input, with texts of so many words."""
    rng = random.Random(7)
    return [{"custom_id": f"line-{n:06d}", "text": " ".join(rng.choices(WORDS, k=words))} for n in range(count)]
