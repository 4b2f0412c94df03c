"""A key that somebody wants to make: what the form shows, and what its fields mean. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.admission import key_terms
from app.engines.catalogue import Catalogue
from app.errors import BadInput
from app.metering import spend_labels
from app.tenants.key_scope import KeyLimits, KeyRole, KeyScope

PATH = "/console/keys/new"
ROLES = {
    KeyRole.SUBMITTER: "submitter: requests and batches only",
    KeyRole.ADMIN: "admin: everything in the account",
    KeyRole.VIEWER: "viewer: no prompt and no answer",
}
_FIRST = {"role": KeyRole.SUBMITTER.value, "expires": "90d"}  # as the admin routes make it; a key that ends by itself
_NAMED = 6  # models in the hint


@dataclass(frozen=True, slots=True)
class Terms:
    """What a key is made with. `lifetime` None: until it is revoked."""

    name: str
    scope: KeyScope
    lifetime: timedelta | None
    limits: KeyLimits
    pins: Mapping[str, str]


def terms(form: Mapping[str, str], models: Catalogue, now: datetime) -> Terms:
    """What the fields of the form mean. Raises BadInput naming the field."""
    workflow = form.get("workflow", "")
    if workflow and (problem := spend_labels.check_pin("workflow", workflow)) is not None:
        raise BadInput(f"workflow: {problem}", param="workflow")
    requests, tokens = _number(form, "requests"), _number(form, "tokens")
    key_terms.check_limits(requests, tokens)
    return Terms(
        key_terms.name_of(form.get("name", "")),
        key_terms.scope_of(
            models,
            role=form.get("role", ""),
            models=form.get("models", "").split(),
            networks=form.get("networks", "").split(),
        ),
        key_terms.lifetime_of(form["expires"], now) if form.get("expires") else None,
        KeyLimits(requests, tokens),
        {"workflow": workflow} if workflow else {},
    )


def _number(form: Mapping[str, str], name: str) -> int | None:
    given = form.get(name, "")
    if given and not (given.isascii() and given.isdecimal() and len(given) < 20):
        raise BadInput(f"{name}: must be a whole number, or empty", param=name)
    return int(given) if given else None


def view(form: Mapping[str, str], problem: str, account: str, models: Catalogue) -> dict[str, Any]:
    """What the template of the form needs. `form`: what was filled in; empty at first."""
    known = sorted(models.models)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return {
        "given": form or _FIRST,
        "problem": problem,
        "account": account,
        "roles": [(role.value, words) for role, words in ROLES.items()],
        "models": ", ".join(known[:_NAMED]) + more,
        "back": "/console/keys",
        "cli": f"slackwater key create --account {account} --expires 90d",
    }
