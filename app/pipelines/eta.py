"""When a pipeline will be done: how many tokens its stages still need, and how long the engines take for them. Pure.

What the items of a stage that exist still need is known. Those to come are counted from the items of its parent that it has not
seen: each will become as many as those before did, of the same size. The slowest model decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

LEAST_SEEN = 1  # parents, before their rate counts


@dataclass(frozen=True, slots=True)
class StageLoad:
    """A stage at one moment. `n`, `parent`: numbers, the input 0; None: it has no parent. `pool`: the model as engines serve it;
    None: it runs nothing. `total`: items that exist. `taken`: results of its parent that were handed on to it. `ran`: items that
    are requests. `final`: no more items come. `usual`: items that one of its parent makes while none is known. `tokens`: of one
    request; None: not known.
    """

    n: int
    parent: int | None
    pool: str | None
    total: int
    taken: int
    ran: int
    final: bool
    usual: float = 1.0
    tokens: float | None = None


def to_come(stages: Sequence[StageLoad]) -> dict[int, float]:
    """By stage, the items that do not exist yet. The stages come in the order of their numbers."""
    whole: dict[int, float] = {}
    found: dict[int, float] = {}
    for stage in stages:
        more = 0.0
        if stage.parent is not None and not stage.final:
            rate = stage.total / stage.taken if stage.taken >= LEAST_SEEN else stage.usual
            more = max(0.0, whole[stage.parent] - stage.taken) * rate
        found[stage.n], whole[stage.n] = more, stage.total + more
    return found


def tokens_to_come(stages: Sequence[StageLoad]) -> Mapping[str, float | None]:
    """By pool, the tokens of requests that do not exist yet; None: not known. A stage without a size of its own has that of its
    parent.
    """
    items, sizes = to_come(stages), dict[int | None, float | None]()
    found: dict[str, float | None] = {}
    for stage in stages:
        size = sizes[stage.n] = sizes.get(stage.parent) if stage.tokens is None else stage.tokens
        if stage.pool is None or not items[stage.n]:
            continue
        share = stage.ran / stage.total if stage.total else 1.0
        before = found.get(stage.pool, 0.0)
        found[stage.pool] = None if size is None or before is None else before + items[stage.n] * share * size
    return found


def seconds(
    stages: Sequence[StageLoad], open_seconds: Sequence[float | None], until: Callable[[str, float], float | None]
) -> float | None:
    """Seconds until the last stage ends. None: not known.

    `open_seconds`: until the items of each unfinished stage that exist are done. `until`: until so many more tokens of a pool
    are done; None: its pace is not known.
    """
    times = list(open_seconds)
    for pool, tokens in tokens_to_come(stages).items():
        times.append(None if tokens is None else until(pool, tokens))
    known = [each for each in times if each is not None]
    return max(known, default=0.0) if len(known) == len(times) else None
