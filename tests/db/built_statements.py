"""The statements that functions of the packages' SQL modules build, each with the arguments that make it differ."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from app.audit import sql as audit
from app.changes import sql as changes
from app.console import queries_items_sql, queries_sql, queries_webhooks_sql
from app.engines import sql as engines
from app.files import sql as files
from app.headroom import sql as headroom
from app.metering import report_sql
from app.pipelines import listing_sql as pipeline_lists
from app.pipelines import sql as pipelines
from app.queue import batch_state_sql, chunk_sweeps_sql, listing_sql, stages_sql
from app.sessions import listing_sql as conversation_lists
from app.tenants import key_list_sql
from app.webhooks import endpoint_sql

Build = Callable[..., str]


def _filters(names: Iterable[str]) -> list[frozenset[str]]:
    """No filter, each one alone, and all of them."""
    names = tuple(names)
    return [frozenset(), *(frozenset({name}) for name in names), frozenset(names)]


_BATCHES = _filters(listing_sql._WHERE)
BUILDERS: Mapping[Build, Sequence[Any]] = {
    changes.page: _filters(changes._WHERE),
    engines.change_intake: ["drain", "drain now", "undrain"],
    files.list_files: [True, False],
    files.refused: [True, False],
    report_sql.usage: [(), *((name,) for name in report_sql.DIMENSIONS)],
    report_sql.latencies: [(), *((name,) for name in report_sql.DIMENSIONS)],
    report_sql.by_price: list(report_sql.DIMENSIONS),
    report_sql.sessions: [(), *((name,) for name in report_sql.SESSION_DIMENSIONS)],
    listing_sql.page: _BATCHES,
    listing_sql.page_of_accounts: _BATCHES,
    batch_state_sql.transition: ["pause", "resume", "cancel"],
    stages_sql.follow: ["pause", "resume", "cancel", "expire"],
    pipelines.transition: ["pause", "resume", "cancel"],
    endpoint_sql.transition: ["verify", "pause", "disable", "enable"],
    key_list_sql.page: list(key_list_sql.VIEWS),
    queries_sql.page: _filters(queries_sql.CONDITIONS),
    pipeline_lists.page: _filters(pipeline_lists.CONDITIONS),
    conversation_lists.page: _filters(conversation_lists.CONDITIONS),
    headroom.recent: list(headroom.KINDS),
    audit.latest: _filters(("account", "target")),
    queries_webhooks_sql.page: list(queries_webhooks_sql.VIEWS),
    queries_items_sql.walked: list(queries_items_sql.WALKS),
}
# They return a part of a statement. Those that use it are planned.
PARTS = {
    *("app.changes.sql.also", "app.headroom.samples_sql.history"),
    *("app.queue.fair_order_sql.current_virtual_time", "app.queue.fair_order_sql.woken"),
    "app.queue.fair_order_sql.mark_lowered",
    *("app.queue.fair_order_sql.free_accounts", "app.queue.fair_order_sql.is_free", "app.queue.fair_order_sql.waking"),
    *("app.queue.fair_order_sql.chunks_by_account", "app.queue.forecast_sql.latest_pace"),
    *("app.queue.unreserved_sql.counted", "app.queue.unreserved_sql.places", "app.queue.unreserved_sql.spent"),
    *("app.webhooks.events_sql.batch_matches", "app.webhooks.events_sql.subscribed_kind"),
    "app.webhooks.events_sql.stable_id",
}


def name_of(build: Callable[..., Any]) -> str:
    """The full name of a function."""
    return f"{build.__module__}.{build.__name__}"


def built() -> Iterator[tuple[str, str]]:
    """The statements, by the name and the argument of their function."""
    for build, arguments in BUILDERS.items():
        for argument in arguments:
            yield f"{name_of(build)}({argument!r})", build(argument)
    for one in (True, False):
        for text in chunk_sweeps_sql.sweeps(one=one):
            yield f"{name_of(chunk_sweeps_sql.sweeps)}({one})", text


def unknown(modules: Iterable[ModuleType]) -> set[str]:
    """Public functions of these modules that are not listed here."""
    known = PARTS | {name_of(build) for build in (*BUILDERS, chunk_sweeps_sql.sweeps)}
    functions = {
        name_of(found)
        for module in modules
        for name, found in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and found.__module__ == module.__name__
    }
    return functions - known
