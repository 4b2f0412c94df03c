"""The sessions of the console. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.access.sessions import SessionInfo
from app.console.views import text, times
from app.console.views.batch_actions import Action

PATH = "/console/access"
SHOWN = 50


def view(seen: Sequence[SessionInfo], viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need. `seen`: one more than are shown if there are more."""
    rows, first, more = seen[:SHOWN], "before" not in params, len(seen) > SHOWN
    return {
        "title": "Sessions of the console"
        if more or not first
        else f"{text.plural(len(rows), 'session')} of the console",
        "rows": [_row(each, viewer, now) for each in rows],
        "pages": {
            "names": (),
            "words": f"{text.plural(len(rows), 'session')}, newest first",
            "cli": "slackwater console sessions",
            "newer": "" if first else PATH,
            "older": f"{PATH}?before={rows[-1].session_id}" if more else "",
        },
    }


def _row(session: SessionInfo, viewer: Viewer, now: datetime) -> dict[str, Any]:
    may = viewer.role.acts
    words = f"{session.subject} has to sign in again. What they have done stays."
    action = Action(
        f"revoke-{session.session_id}",
        "End",
        f"/console/access/{session.session_id}/revoke",
        f"End this session of {session.subject}?",
        words,
        confirm="End the session",
        cli=f"slackwater console revoke {session.session_id}",
        danger=True,
    )
    return {
        "id": session.session_id,
        "subject": session.subject,
        "role": str(session.role),
        "account": session.account or "all",
        "since": times.span((now - session.signed_in_at).total_seconds()),
        "signed_in_at": session.signed_in_at,
        "idle": times.span((now - session.seen_at).total_seconds()),
        "seen_at": session.seen_at,
        "action": action if may else None,
    }
