"""Arm `cached_share`: how much of the prompts of a second stage is in the engine's prefix cache, a pipeline against by hand.

Both stages ask about the same documents, which are in front of the question, behind instructions that all requests share. The
documents are ten times what the cache holds. A pipeline asks the second question soon after the first, while the document is
cached. By hand, the second question comes when all documents have had the first, so only the instructions are cached.

The cache is a model of vLLM's, exact to the block (`benchmarks/gateway/prefix_cache.py`), the same for both. The engine, a fake,
takes as long for a cached prompt as for another, so times are not compared.
"""

import math
from typing import Any

from benchmarks.gateway.prefix_cache import BLOCK_TOKENS
from benchmarks.harness import open_testbed, say
from benchmarks.pipelines.callers import Step, Work, as_pipeline, by_hand
from benchmarks.pipelines.served import TimedModel, served
from benchmarks.pipelines.speedup import lines

MODEL = "reader"
SLOTS = 64
ENGINE_SECONDS = 0.4
POLL_SECONDS = 1.0
BYTES_A_TOKEN = 4  # of the fake engine
DOCUMENT_WORDS, DOCUMENT_TOKENS = 1250, 2000
INSTRUCTIONS = "Answer with one topic, and with nothing else. " * 44  # 500 tokens
_QUESTIONS = ("Which topic has {{item.custom_id}}?", "Is that the topic of {{item.custom_id}}? {{text}}")


def cached_share(*, documents: int = 2560, kept: int = 256, slots: int = SLOTS, **changes: int) -> dict[str, Any]:
    """`cached_share_ratio`: the share of the prompt tokens of the second stage that are cached, in the pipeline to by hand.

    `kept`: documents that fit into the cache. `changes`: of the settings.
    """
    blocks = math.ceil(kept * (len(INSTRUCTIONS) / BYTES_A_TOKEN + DOCUMENT_TOKENS) / BLOCK_TOKENS)
    steps = [Step(f"stage-{n}", MODEL, _messages(question)) for n, question in enumerate(_QUESTIONS, 1)]
    shares, said = {}, []
    with open_testbed("") as testbed:
        work = Work(lines(documents, DOCUMENT_WORDS), steps, POLL_SECONDS, testbed.folder)
        for name, call in (("pipeline", as_pipeline), ("by_hand", by_hand)):
            with served(testbed, [TimedModel(MODEL, slots, ENGINE_SECONDS, blocks)], **changes) as installation:
                outcome = call(installation.client, work)
            testbed.clear()
            shares[name] = outcome.cached_share
            said.append(outcome.texts)
            say(f"cached_share: {name}: {outcome.cached_share:.1%} of the second stage, {outcome.seconds:.0f} s")
    if said[0] != said[1]:
        raise SystemExit("the two callers have different answers")
    return {
        "cached_share_ratio": round(shares["pipeline"] / shares["by_hand"], 2) if shares["by_hand"] else None,
        "cached_share_pipeline": round(shares["pipeline"], 3),
        "cached_share_by_hand": round(shares["by_hand"], 3),
        "cached_share_documents": documents,
        "cached_share_documents_kept": kept,
    }


def _messages(question: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "{{item.text}}"},
        {"role": "user", "content": question},
    ]
