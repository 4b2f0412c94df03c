"""How often the detectors find what is there, and what is not: `python -m tests.policy.rates` prints it as JSON.

The families of `unseen_families` were written by somebody who did not know the detectors. What they showed at first sight is in
docs/redaction.md; most of it was mended then.
"""

import json
import sys
from collections.abc import Mapping
from random import Random
from types import ModuleType
from typing import Any

from app.detection.detectors import BUILT_IN_KINDS, Detectors
from tests.policy import seen_families, unseen_families

FAMILIES: Mapping[str, ModuleType] = {"seen": seen_families, "unseen": unseen_families}
TEXTS = 400  # of each family


def rates(families: ModuleType, texts: int = TEXTS) -> dict[str, Any]:
    """The recall of each family and kind, and the families whose texts have a value that is none, with their share."""
    detectors, random = Detectors(BUILT_IN_KINDS, {}), Random(7)
    recalls: dict[str, tuple[str, float]] = {}
    for name, family in families.TRUE.items():
        kind = family(random)[1]
        recalls[name] = kind, sum(_is_found(detectors, *family(random)) for _ in range(texts)) / texts
    wrong = {
        name: sum(bool(detectors.find(family(random).encode())) for _ in range(texts)) / texts
        for name, family in families.FALSE.items()
    }
    kinds = sorted({kind for kind, _ in recalls.values()})
    return {
        "recall": round(sum(recall for _, recall in recalls.values()) / len(recalls), 4),
        "recall_by_kind": {kind: round(_mean([r for k, r in recalls.values() if k == kind]), 4) for kind in kinds},
        "found_in_1000_without": round(1000 * _mean(list(wrong.values())), 2),
        "families": len(recalls) + len(wrong),
        "texts": texts * (len(recalls) + len(wrong)),
        "missed": {name: recall for name, (_, recall) in recalls.items() if recall < 1},
        "wrong": {name: share for name, share in wrong.items() if share},
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _is_found(detectors: Detectors, text: str, kind: str, value: str) -> bool:
    """Whether no part of the value would stay."""
    data, wanted = text.encode(), value.encode()
    start = data.index(wanted)
    return any(h.start <= start and h.end >= start + len(wanted) for h in detectors.find(data))


if __name__ == "__main__":
    found = {name: rates(families) for name, families in FAMILIES.items()}
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
