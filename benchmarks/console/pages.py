"""Arm `pages`: the time of the server for every page, the slowest statement of each, and what a browser loads for the first.

Pages are opened in turn, each at most once a second, because the console answers a second request within a second from what it
has just read. The times are those of a client on the same machine, until the whole page has arrived. The statements are those
that PostgreSQL's log has while a page is opened, in a second console: with every statement in the log, PostgreSQL is slower.
"""

import gzip
import re
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from time import monotonic, sleep
from typing import Any

import psycopg

from app.access.roles import Role
from app.console.pages import PAGES
from app.pipelines.ids import format_id
from app.sessions.service import CONVERSATION
from benchmarks.console.installed import ENGINE, HOOK, LARGE_BATCH, Installed, install
from benchmarks.console.site import PageReader, Site, console
from benchmarks.console.statement_log import StatementLog
from benchmarks.harness import Testbed, say
from testing import large_flows

FIRST = "/console/now"
_BATCH = f"/console/batches/{LARGE_BATCH}"
_ASSET = re.compile(rb'(?:href|src)="(/console/static/[^"]+)"')
_LEAST_SECONDS = 1.1  # of a round, so that no page is answered from what the round before has read


def addresses(installed: Installed) -> dict[str, tuple[Role, str]]:
    """Every page by name: who opens it, and where."""
    middle = installed.large.items // 2
    found = {
        "now": FIRST,
        "now-24h": f"{FIRST}?range=24h",
        "batches": "/console/batches",
        "batches-ended": "/console/batches?view=ended",
        "batches-filtered": "/console/batches?view=all&q=tag:nightly+model:toy",
        "batch": _BATCH,
        "batch-middle": f"{_BATCH}?items=answered&from={middle}",
        "pipelines": "/console/pipelines",
        "conversations": "/console/conversations",
        "engines": "/console/engines?range=24h",
        "engine": f"/console/engines/{ENGINE}?range=24h",
        "fairness": "/console/fairness",
        "incidents": "/console/incidents?range=7d",
        "duties": "/console/duties",
        "webhooks": "/console/webhooks",
        "webhook": f"/console/webhooks/{HOOK}",
        "delivery": f"/console/webhooks/{HOOK}/deliveries/{installed.delivery}",
        "spend": "/console/spend",
        "sessions": "/console/sessions",
        "policy": "/console/policy",
        "audit": "/console/audit",
        "keys": "/console/keys",
        "access": "/console/access",
        "find": "/console/find?q=name-5",
    }
    of_account = {
        "batch-admin": _BATCH,
        "item": f"{_BATCH}/items/{middle}",
        "pipeline": f"/console/pipelines/{format_id(large_flows.pipeline(large_flows.PIPELINES))}",
        "conversation": f"/console/conversations/{CONVERSATION}{large_flows.conversation(large_flows.CONVERSATIONS).hex}",
        "new": "/console/batches/new",
        "playground": "/console/playground",
    }
    return {name: (Role.OPERATOR, path) for name, path in found.items()} | {
        name: (Role.ADMIN, path) for name, path in of_account.items()
    }


def pages(testbed: Testbed, batches: int, items: int, rounds: int) -> dict[str, Any]:
    """The figures of all pages."""
    installed = install(testbed, batches, items)
    table = addresses(installed)
    if missing := {page.name for page in PAGES} - set(table) - {"growth"}:
        raise SystemExit(f"pages without an address here: {', '.join(sorted(missing))}")
    with console(installed.settings) as site:
        readers = _readers(site, installed)
        found = first_page(readers[Role.OPERATOR])
        times = _rounds(readers, table, rounds, PageReader.timed)
    found["server_ms_p95"] = {name: _p95(values) for name, values in times.items()}
    found["server_ms_p50"] = {name: round(median(values), 1) for name, values in times.items()}
    found |= _statements(testbed, installed, table, rounds)
    slowest = max(found["server_ms_p95"].items(), key=lambda each: each[1])
    say(f"first page {found['first_page_kb_gz']} kB; slowest page {slowest[0]}: {slowest[1]} ms")
    return {**found, "page_batches": batches, "page_items": items, "page_rounds": rounds}


def first_page(reader: PageReader) -> dict[str, Any]:
    """Kilobytes of 1,000 bytes of the first page with everything that it loads: all gzipped, and as the server sends it."""
    _, html = reader.get(FIRST)
    plain = gzip.decompress(html) if html[:2] == b"\x1f\x8b" else html
    parts = {"html": (len(gzip.compress(plain)), len(html))}
    for path in sorted({found.decode() for found in _ASSET.findall(plain)}):
        _, body = reader.get(path)
        size = len(body) if body[:2] == b"\x1f\x8b" else len(gzip.compress(body))
        parts[path.split("/", 4)[-1]] = (size, len(body))
    return {
        "first_page_kb_gz": round(sum(packed for packed, _ in parts.values()) / 1e3, 1),
        "first_page_kb_sent": round(sum(sent for _, sent in parts.values()) / 1e3, 1),
        "first_page_parts_kb_gz": {name: round(packed / 1e3, 1) for name, (packed, _) in parts.items()},
    }


def _readers(site: Site, installed: Installed) -> dict[Role, PageReader]:
    admin = site.sign_in(Role.ADMIN, installed.account)
    return {Role.OPERATOR: site.reader(site.sign_in(Role.OPERATOR)), Role.ADMIN: site.reader(admin)}


def _rounds(
    readers: Mapping[Role, PageReader],
    table: Mapping[str, tuple[Role, str]],
    rounds: int,
    measure: Callable[[PageReader, str], float],
) -> dict[str, list[float]]:
    """Measure each page once in every round. The first round is warm-up and is left out."""
    found: dict[str, list[float]] = {name: [] for name in table}
    for number in range(rounds + 1):
        began = monotonic()
        for name, (role, path) in table.items():
            value = measure(readers[role], path)
            if number:
                found[name].append(value)
        sleep(max(0.0, _LEAST_SECONDS - (monotonic() - began)))
    return found


def _statements(
    testbed: Testbed, installed: Installed, table: Mapping[str, tuple[Role, str]], rounds: int
) -> dict[str, Any]:
    """The slowest statement of each page. Null where the log of the server cannot be read here."""
    log = StatementLog.of(testbed)
    if log is None:
        return {"database_ms_p95": None}
    url = installed.settings.database_url
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(log.enable(conn.info.dbname))
    texts: dict[str, tuple[float, str]] = {}  # by address

    def slowest(reader: PageReader, path: str) -> float:
        log.skip()
        reader.get(path)
        milliseconds, text = max(log.read(), default=(0.0, ""))
        texts[path] = max(texts.get(path, (0.0, "")), (milliseconds, text))
        return milliseconds

    with console(installed.settings) as site:
        times = _rounds(_readers(site, installed), table, rounds, slowest)
    found = {name: _p95(values) for name, values in times.items()}
    name = max(found, key=lambda each: found[each])
    most, text = texts[table[name][1]]
    say(f"slowest statement, of {name}: {found[name]} ms (at most {most:.1f}): {text[:300]}")
    medians = {name: round(median(values), 1) for name, values in times.items()}
    return {"database_ms_p95": found, "database_ms_p95_slowest": found[name], "database_ms_p50": medians}


def _p95(values: list[float]) -> float:
    return round(quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0], 1)
