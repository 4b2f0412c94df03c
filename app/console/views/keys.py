"""API keys: which are live, which nobody uses, and how near they are to their limits. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app import places
from app.access.roles import Viewer
from app.console.views import batch_filter, plots, signs, text, times
from app.console.views.batch_actions import Action
from app.console.views.batches import few
from app.console.views.plots import Meter
from app.console.views.signs import Sign
from app.quantities import used_ago
from app.tenants.key_list import KeyRow, KeySummary
from app.tenants.key_scope import KeyLimits

PATH = "/console/keys"
VIEWS = {"live": "Live", "unused": "Unused for 30 days", "ended": "Revoked or expired", "all": "All"}
_SOON = timedelta(days=14)
_NEAR = 0.9  # of a limit


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `usual`: the limits of a key that has none of its own."""

    rows: Sequence[KeyRow]
    more: bool
    summary: KeySummary
    usual: KeyLimits


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    chosen, account = params.get("view", "live"), params.get("q", "")
    keep = {"view": chosen if chosen != "live" else ""}
    return {
        "title": title(seen.summary),
        "rest": rest(seen, now),
        "tabs": [
            {"name": name, "href": batch_filter.address(PATH, view=key if key != "live" else "", q=account),
             "here": key == chosen, "count": ""}
            for key, name in VIEWS.items()
        ],
        "chips": [{"name": "account", "value": account, "raw": account, "without": batch_filter.address(PATH, **keep)}]
        if account else [],
        "keep": [(name, value) for name, value in keep.items() if value],
        "rows": [_row(row, seen.usual, viewer, now) for row in seen.rows],
        "one_account": bool(viewer.account),
        "makes": viewer.role.reveals,
        "is_filtered": bool(account or chosen != "live"),
        "clear": PATH,
        "pages": _pages(seen, params, keep, account),
    }  # fmt: skip


def title(found: KeySummary) -> str:
    """How many keys are live."""
    if not found.live:
        return "No key is live"
    return f"{text.sentence(few(found.live))} {'key is' if found.live == 1 else 'keys are'} live"


def rest(seen: Seen, now: datetime) -> str:
    """What is remarkable: keys at their limit, that nobody uses, that expire soon."""
    said, found = [], seen.summary
    near = [row for row in seen.rows if _share(row, seen.usual) >= _NEAR]
    if near:
        said.append(f"{text.inert(near[0].name, 80)[0]} is near its limit in this minute.")
    if found.unused:
        said.append(f"{text.sentence(few(found.unused))} {'has' if found.unused == 1 else 'have'} not been used for 30 days; "
                    "a key that nobody needs can be revoked.")  # fmt: skip
    if found.expiring:
        said.append(
            f"{text.sentence(few(found.expiring))} {'expires' if found.expiring == 1 else 'expire'} within two weeks."
        )
    return " ".join(said) or ("None has been unused for 30 days." if found.live else "")


def limits(row: KeyRow, usual: KeyLimits) -> KeyLimits:
    """The limits in force."""
    return KeyLimits(row.requests_per_minute or usual.requests, row.tokens_per_minute or usual.tokens)


def _share(row: KeyRow, usual: KeyLimits) -> float:
    """How much of its nearest limit a key has used in this minute."""
    most = limits(row, usual)
    used = [(row.requests or 0, most.requests), (row.tokens or 0, most.tokens)]
    return max((number / limit for number, limit in used if limit), default=0.0)


def state(row: KeyRow, now: datetime) -> tuple[Sign, str]:
    """Whether a key opens anything."""
    if row.revoked_at:
        return signs.QUIET, f"Revoked {times.clock_time(row.revoked_at, now)}"
    if row.expires_at and row.expires_at <= now:
        return signs.QUIET, f"Expired {times.clock_time(row.expires_at, now)}"
    if row.expires_at and row.expires_at < now + _SOON:
        return signs.LOOK, f"Expires in {times.span((row.expires_at - now).total_seconds())}"
    return signs.ENDED, "Live"


def _row(row: KeyRow, usual: KeyLimits, viewer: Viewer, now: datetime) -> dict[str, Any]:
    sign, words = state(row, now)
    used = used_ago((now - row.last_used_at).total_seconds()) if row.last_used_at else "never"
    return {
        "id": row.key_id,
        "name": text.inert(row.name, 120)[0],
        "account": row.account,
        "sign": sign,
        "words": words,
        "used": used,
        "used_at": row.last_used_at,
        "made": times.span((now - row.created_at).total_seconds()),
        "made_at": row.created_at,
        "minute": minute(row, usual) if sign is not signs.QUIET else None,
        "pins": text.inert(", ".join(row.pins or ()), 200)[0],
        "scope": scope(row),
        "action": _revoke(row, used) if viewer.role.acts and sign is not signs.QUIET else None,
    }


def scope(row: KeyRow) -> str:
    """The role of a key, and what it is limited to."""
    only = [*(row.models or ()), *(row.endpoints or ()), *(row.networks or ())]
    return text.inert(f"{row.role}, only {', '.join(only)}" if only else row.role, 200)[0]


def minute(row: KeyRow, usual: KeyLimits) -> tuple[Meter | None, str]:
    """What the key used in this minute of its nearest limit, as a bar and in words."""
    most = limits(row, usual)
    words = []
    for number, limit, what in ((row.requests, most.requests, "requests"), (row.tokens, most.tokens, "tokens")):
        if limit:
            words.append(f"{text.compact(number or 0)} of {text.compact(limit)} {what}")
        elif number:
            words.append(f"{text.compact(number)} {what}")
    if not (most.requests or most.tokens):
        return None, ", ".join([*words, "no limit"])
    share = min(1.0, _share(row, usual))
    kind = "warn" if share >= _NEAR else "up"
    return plots.meter(f"{row.name}: {', '.join(words)} in this minute", 1.0, (kind, share)), ", ".join(words)


def _revoke(row: KeyRow, used: str) -> Action:
    name = text.inert(row.name, 80)[0]
    words = (
        f"Whoever uses it is refused within seconds. It was last used {used}. This cannot be taken back; batches that it has "
        "queued go on."
    )
    if row.last_used_at is None:
        words = "Nobody has used it. This cannot be taken back."
    return Action(f"revoke-{row.key_id}", "Revoke", f"{PATH}/{row.key_id}/revoke", f"Revoke the key {name}?", words,
                  confirm="Revoke it", cli=f"slackwater key revoke {row.key_id}", danger=True)  # fmt: skip


def _pages(seen: Seen, params: Mapping[str, str], keep: Mapping[str, str], account: str) -> dict[str, Any]:
    older = ""
    if seen.more and seen.rows:
        last = seen.rows[-1]
        older = batch_filter.address(PATH, **keep, q=account, after=places.written(last.created_at, last.key_id))
    newer = batch_filter.address(PATH, **keep, q=account) if params.get("after") else ""
    words = f"{text.plural(len(seen.rows), 'key')}, newest first"
    return {"names": (), "words": words, "older": older, "newer": newer, "cli": "slackwater key list"}
