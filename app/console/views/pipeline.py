"""One pipeline: rows to words and figures. `pipeline_flow` has its stages, `pipeline_actions` its buttons. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.console.views import pipeline_actions, pipeline_flow, pipeline_state, signs, text, times
from app.console.views.figures import Figure, Part, figure
from app.console.views.pipeline_filter import PATH
from app.engines.catalogue import Catalogue
from app.flows.stages import INPUT
from app.pipelines.listing import Listed
from app.pipelines.outlook import PipelineOutlook, StageOutlook

_NEAR_BUDGET = 0.8  # of it, from which somebody should look


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read."""

    listed: Listed
    outlook: PipelineOutlook
    models: Catalogue


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    row = seen.listed.row
    strong, rest = pipeline_state.lede(seen.outlook, now)
    return {
        "path": f"{PATH}/{row.public_id}",
        "public_id": row.public_id,
        "title": pipeline_state.name_of(row),
        "strong": strong,
        "rest": rest,
        "sign": sign(seen.outlook),
        "actions": pipeline_actions.of(seen.outlook, viewer),
        "figures": figures(seen, now),
        "flow": pipeline_flow.tree(seen.outlook),
        "stages": pipeline_flow.rows(seen.outlook),
        "cli_why": f"slackwater why {row.public_id}",
        "facts": facts(seen, now),
    }


def sign(seen: PipelineOutlook) -> signs.Sign:
    """The sign beside the name."""
    row = seen.sight.row
    if row.finalized_at is not None:
        return signs.final(row.state)[0]
    if seen.waiting is not None:
        return pipeline_state.paused(row).sign
    busy = any(each.waiting is None and each.sight.status.finalized_at is None for each in _ran(seen))
    return signs.RUNS if busy and row.state == "open" else signs.WAITS


def _ran(seen: PipelineOutlook) -> list[StageOutlook]:
    return [each for each in seen.stages if pipeline_state.runs(each.sight)]


def figures(seen: Seen, now: datetime) -> list[Figure]:
    """Five: what is done, how many stages have ended, the end, the cost, the cache."""
    ran = _ran(seen.outlook)
    found = [_done(ran), _stages(seen, ran), _end(seen, now)]
    if (spent := _cost(seen)) is not None:
        found.append(spent)
    prompt = sum(each.sight.status.prompt_tokens for each in ran)
    cached = sum(each.sight.status.cached_tokens for each in ran)
    words = f"{text.compact(cached)} of {text.compact(prompt)}" if prompt else "none counted yet"
    share = text.percent(cached / prompt) if prompt else "–"
    found.append(figure("Prompt tokens from cache", share, "%" if prompt else "", words))
    return found


def _done(ran: list[StageOutlook]) -> Figure:
    statuses = [each.sight.status for each in ran]
    total, ok, failed = (sum(getattr(each, name) for each in statuses) for name in ("total", "ok", "failed"))
    words = [Part(f"{ok + failed:,} of {total:,} items")]
    if any(each.fed and each.finalized_at is None for each in statuses):
        words.append(Part(" so far; more come"))
    if failed:
        words += [Part(", "), Part(f"{failed:,} failed", "bad" if failed > 0.01 * (ok + failed) else "")]
    return figure("Done", text.percent((ok + failed) / total) if total else "–", "%" if total else "", *words)


def _stages(seen: Seen, ran: list[StageOutlook]) -> Figure:
    final = sum(each.sight.status.finalized_at is not None for each in ran)
    lines = seen.listed.row.inputs
    words = "its input is not complete" if lines is None else f"from {text.plural(lines, 'line')}"
    return figure("Stages ended", f"{final}", f"of {len(ran)}", words)


def _end(seen: Seen, now: datetime) -> Figure:
    row = seen.listed.row
    if row.finalized_at is not None:
        value, _, unit = times.span((row.finalized_at - row.opened_at).total_seconds()).partition(text.NBSP)
        return figure("Took", value, unit, f"ended {times.clock_time(row.finalized_at, now)}")
    end = pipeline_state.ending(seen.outlook, now)
    inside = f"in {times.span(max(1.0, seen.outlook.seconds or 0.0))}" if end.at is not None else ""
    at = times.clock_time(end.at, now) if end.at is not None else "–"
    return figure("Ends", at, inside, Part(end.due, "warn" if end.late else ""))


def _cost(seen: Seen) -> Figure | None:
    """What it has cost, against its budget. None: it has neither."""
    row, spent = seen.listed.row, seen.outlook.sight.spent
    limit, currency = pipeline_state.budget(row, spent)
    if spent is None and limit is None:
        return None
    amount = spent.amount if spent else 0.0
    if limit is None:
        return figure("Cost", text.money(amount, currency), "", "it has no budget")
    share = amount / limit if limit else 1.0
    near = "warn" if share >= _NEAR_BUDGET else ""
    words = f"{text.percent(min(share, 1.0))}{text.NBSP}% of its budget of {text.money(limit, currency)}"
    return figure("Cost", text.money(amount, currency), "", Part(words, near))


def facts(seen: Seen, now: datetime) -> list[tuple[str, str, bool]]:
    """How it came: name, value, and whether the value is code."""
    row, flow = seen.listed.row, seen.outlook.sight.flow
    found = [("By", seen.listed.account, False)]
    window = "no deadline"
    if row.expires_at is not None:
        window = f"{times.span((row.expires_at - row.opened_at).total_seconds())}, until "
        window += times.clock_time(row.expires_at, now)
    found.append(("Window", window, False))
    first = seen.outlook.stages[INPUT].sight
    what = "results of another batch" if flow.input.answers else f"{text.plural(first.status.total, 'line')}"
    found += [("Input", what, False), ("Run", f"{row.run}", False)]
    if flow.limit is not None:
        found.append(("Sample", f"the first {text.plural(flow.limit, 'line')}", False))
    if first.status.tags:
        found.append(("Tags", text.inert(", ".join(first.status.tags), 600)[0], True))
    if first.status.traceparent:
        found.append(("Trace", first.status.traceparent.split("-")[1], True))
    return [*found, ("Submitted", times.iso(row.created_at), False)]
