"""A batch in words: what it does or waits for, its end, its cost. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.batches.why_chain import Link, Why
from app.console.queries import BatchRow
from app.console.views import signs, text, times
from app.console.views.plots import Meter, meter
from app.console.views.signs import Sign
from app.engines.catalogue import Catalogue, Price
from app.engines.outcome import Usage
from app.engines.pricing import cost
from app.engines.rate_card import queued_work
from app.queue.item_counts import ItemCounts
from app.sentences import ended
from app.states import BatchState

_TROUBLE = {"engine_down", "engine_starting", "closed_stale", "closed_unknown"}  # of one of several engines
_BAD_SHARE = 0.01  # failures below this share are grey


@dataclass(frozen=True, slots=True)
class Standing:
    """What a batch does now. `sub`: the same with its numbers. `late`: it will miss its deadline at the present pace."""

    sign: Sign
    words: str
    sub: str
    code: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """When a batch ends. `at`: empty if unknown, and `unknown` says why. `due`: its deadline in words."""

    at: str
    due: str
    confidence: str = ""
    late: bool = False
    seconds: float | None = None
    unknown: str = ""


def items(row: BatchRow, why: Why | None) -> ItemCounts:
    """Where its items are."""
    if why is not None:
        return why.status.items
    return ItemCounts(row.total, row.ok, row.failed, ended=row.finalized_at is not None)


def counts(row: BatchRow, why: Why | None) -> tuple[int, int]:
    """Answered and failed items, as live as they are known."""
    found = items(row, why)
    return found.succeeded, found.failed


def live(row: BatchRow, why: Why | None) -> BatchRow:
    """The row with what is counted of chunks that workers have."""
    if why is None:
        return row
    names = ("ok", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
    return replace(row, **{name: getattr(why.status, name) for name in names})


def standing(row: BatchRow, why: Why | None, now: datetime) -> Standing:
    """The state of a batch. `why`: of one that has not ended."""
    if row.finalized_at is not None or why is None or why.status.finalized_at is not None:
        state = row.state if row.finalized_at is not None or why is None else why.status.state
        if state in BATCH_FINAL:
            sign, words = signs.final(state)
            return Standing(sign, words, _after(row, now), str(state))
        return Standing(signs.WAITS, text.sentence(str(state)), "", str(state))
    link = why.waiting
    late = ending(row, why, now).late
    if link is None:
        told = next((each.message for each in why.chain if each.code in {"running", "settling"}), "")
        if late:
            return Standing(signs.LOOK, "Runs, will be late", told, "running", late=True)
        return Standing(signs.RUNS, "Runs", told, "running")
    sign, words, _ = signs.waiting(link.code)
    return Standing(
        signs.LOOK if late else sign, words + (", will be late" if late else ""), link.message, link.code, late
    )


BATCH_FINAL = {BatchState.COMPLETED, BatchState.FAILED, BatchState.CANCELLED, BatchState.EXPIRED}


def _after(row: BatchRow, now: datetime) -> str:
    if row.finalized_at is None:
        return ""
    ago = times.span((now - row.finalized_at).total_seconds())
    return f"{ago} ago, after {times.span((row.finalized_at - row.opened_at).total_seconds())}"


def ending(row: BatchRow, why: Why | None, now: datetime) -> Ending:
    """When it ends, or ended."""
    due = f"due {times.clock_time(row.expires_at, now)}" if row.expires_at else "no deadline"
    if row.finalized_at is not None:
        return Ending(times.clock_time(row.finalized_at, now), "")
    estimate = why.estimate if why else None
    if estimate is None or estimate.eta_seconds is None:
        return Ending("", due, unknown=(why.no_eta if why else None) or "")
    at = now + timedelta(seconds=estimate.eta_seconds)
    late = row.expires_at is not None and at > row.expires_at
    return Ending(times.clock_time(at, now), due, str(estimate.confidence), late, estimate.eta_seconds)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a batch has cost so far, and is expected to cost as a whole. None: its model has no price."""

    so_far: float | None
    whole: float | None
    currency: str | None


def price_of(row: BatchRow, models: Catalogue) -> Price | None:
    """The price of a batch's model; None: there is none, or its items have several models."""
    model = models.resolve(row.model)
    if model is None or (row.policy or {}).get("models"):
        return None
    work = queued_work(expires=row.expires_at is not None or row.pipeline_id is not None)
    return model.price_of(work, row.created_at)


def costs(row: BatchRow, models: Catalogue) -> Cost:
    """The cost of what is counted, and the same carried on to all items."""
    price = price_of(row, models)
    if price is None:
        return Cost(None, None, None)
    used = Usage(row.prompt_tokens, row.cached_tokens, row.completion_tokens)
    so_far = cost(price, used)
    return Cost(so_far, so_far * row.total / row.done if row.done else None, price.currency)


def progress(row: BatchRow, why: Why | None) -> tuple[Meter, str, str]:
    """The meter, its words, and the words about failures, which are empty if there are none."""
    found = items(row, why)
    words = f"{found.done:,} of {row.total:,}"
    running = found.claimed + found.in_engine
    drawn = meter(f"{row.name}: {words}", row.total, ("ok", found.succeeded), ("bad", found.failed), ("run", running))
    return drawn, words, f"{found.failed:,} failed" if found.failed else ""


def many_failed(ok: int, failed: int) -> bool:
    """Whether so many items have failed that somebody should look."""
    return failed > _BAD_SHARE * (ok + failed)


def lede(row: BatchRow, why: Why | None, now: datetime) -> tuple[str, str]:
    """The sentences that answer: does it run, when will it be done, and what is wrong. The first one is the strong one."""
    ok, failed = counts(row, why)
    wrong = (
        f" {text.sentence(text.plural(failed, 'item'))} {'has' if failed == 1 else 'have'} failed." if failed else ""
    )
    if row.finalized_at is not None:
        took = times.span((row.finalized_at - row.opened_at).total_seconds())
        sign_words = signs.final(row.state)[1]
        left = row.total - row.done
        rest = f" {text.plural(left, 'item')} did not run." if left else ""
        return f"{sign_words} after {took}.", f"{ok:,} of {row.total:,} items have an answer.{rest}{wrong}"
    now_does = standing(row, why, now)
    end = ending(row, why, now)
    strong = now_does.words.removesuffix(", will be late")
    if end.at:
        strong += f"; done at about {end.at}{_against(row, end, now)}"
    rest = text.sentence(ended(now_does.sub)) if now_does.sub else ""
    return f"{strong}.", f"{rest}{wrong}"


def _against(row: BatchRow, end: Ending, now: datetime) -> str:
    """How far the end is from the deadline."""
    if row.expires_at is None or end.seconds is None:
        return ""
    margin = (row.expires_at - now).total_seconds() - end.seconds
    return f", {times.span(abs(margin))} {'before' if margin >= 0 else 'after'} its deadline"


@dataclass(frozen=True, slots=True)
class ShownLink:
    """A link of the chain as it is drawn."""

    sign: Sign
    words: str
    code: str
    here: bool


def chain(links: Sequence[Link], now: datetime) -> list[ShownLink]:
    """The chain of `why`, with the link that holds the batch up marked."""
    here = next((n for n, link in enumerate(links) if link.blocks), None)
    shown = []
    for n, link in enumerate(links):
        sign = signs.waiting(link.code)[0] if link.blocks else signs.DONE if link.met else signs.WAITS
        if not link.blocks and link.code in _TROUBLE:
            sign = signs.waiting(link.code)[0]
        if link.code.startswith("eta"):
            sign = signs.QUIET
        since = f", since {times.clock_time(link.since, now)}" if link.since else ""
        shown.append(ShownLink(sign, text.sentence(link.message), f"{link.code}{since}", n == here))
    return shown
