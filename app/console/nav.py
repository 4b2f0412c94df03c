"""The rail: which pages there are, who sees them, and the numbers beside their names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.access.roles import Role, Viewer
from app.console import queries, queries_webhooks
from app.db.pool import Database

EVERYBODY = frozenset(Role)
INSTALLATION = frozenset({Role.OPERATOR, Role.AUDITOR})


@dataclass(frozen=True, slots=True)
class Badge:
    """What stands beside a name: a text, its colour (warn or bad), and its sign."""

    text: str
    colour: str = ""
    glyph: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the rail. `key`: the second letter of its shortcut, after g."""

    path: str
    name: str
    icon: str
    key: str = ""
    roles: frozenset[Role] = EVERYBODY
    badge: Badge | None = None
    here: bool = False


GROUPS: tuple[tuple[Entry, ...], ...] = (
    (
        Entry("/console/now", "Now", "now", "n"),
        Entry("/console/batches", "Batches", "batches", "b"),
        Entry("/console/pipelines", "Pipelines", "flow", "l"),
        Entry("/console/conversations", "Conversations", "talk", "v"),
        Entry("/console/batches/new", "New batch", "new", "c", roles=frozenset({Role.ADMIN})),
        Entry("/console/playground", "Playground", "play", "y", roles=frozenset({Role.ADMIN})),
    ),
    (
        Entry("/console/spend", "Spend", "spend", "s"),
        Entry("/console/sessions", "Sessions and families", "sessions", "m"),
        Entry("/console/policy", "Policy", "policy", "p", roles=INSTALLATION),
        Entry("/console/audit", "Audit", "audit", "a"),
    ),
    (
        Entry("/console/engines", "Engines", "engines", "e"),
        Entry("/console/fairness", "Fairness", "fair", "f"),
        Entry("/console/incidents", "Incidents", "incidents", "i"),
        Entry("/console/duties", "Duties", "duties", "d", roles=INSTALLATION),
    ),
    (
        Entry("/console/webhooks", "Webhooks", "hooks", "w"),
        Entry("/console/keys", "Keys", "keys", "k"),
        Entry("/console/access", "Signed in", "person", "u"),
    ),
)


# What keys do besides going to a page. The help dialog shows them; console.js and plots.js act on them.
SHORTCUTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("/",), "Find, or filter the list"),
    (("?",), "These shortcuts"),
    (("j", "k"), "Next row, row before"),
    (("x",), "Select the row"),
    (("Enter",), "Open the row"),
    (("[", "]"), "Newer page, older page"),
    (("p",), "Pause or resume"),
    (("←", "→"), "Read a plot that has the focus"),
    (("+", "−"), "See less of its time, or more"),
    (("Esc",), "Close"),
)


def rail(viewer: Viewer, active: str, badges: Mapping[str, Badge | None]) -> list[list[Entry]]:
    """The entries for a viewer, by group."""
    groups = [[entry for entry in group if viewer.role in entry.roles] for group in GROUPS]
    return [
        [replace(entry, here=entry.path == active, badge=badges.get(entry.path)) for entry in group]
        for group in groups
        if group
    ]


def engines(ready: int, known: int) -> dict[str, Badge | None]:
    """The number beside the engines, if not all of them are ready."""
    return {"/console/engines": Badge(f"{ready} of {known}", "warn", "start") if ready < known else None}


async def badges(reader: Database, tenant_id: int | None) -> dict[str, Badge | None]:
    """The numbers of the rail, by path."""
    async with reader.relaxed() as conn:
        found = await queries.rail_counts(conn, tenant_id)
        hooks = await queries_webhooks.summary(conn, tenant_id)
    shown = engines(found.engines_ready, found.engines)
    if found.open_batches:
        more = "+" if found.open_batches >= queries.MOST_COUNTED else ""
        shown["/console/batches"] = Badge(f"{found.open_batches:,}{more}")
    if bad := hooks.failing + hooks.disabled:
        shown["/console/webhooks"] = Badge(f"{bad:,}", "warn", "warn")
    return shown
