"""What an API key is made with, as the command line, the admin routes and the console give it: checked here. Pure."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from app.engines.catalogue import Catalogue
from app.errors import BadInput
from app.quantities import seconds_of
from app.tenants.key_scope import KeyRole, KeyScope, networks_of

MOST_LISTED = 100
LONGEST_DAYS = 36_500
LONGEST_NAME = 100
MOST_REQUESTS, MOST_TOKENS = 2**31 - 1, 10**18  # a minute


def scope_of(
    catalogue: Catalogue,
    *,
    role: str = KeyRole.SUBMITTER.value,
    models: Sequence[str] | None = None,
    endpoints: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    restore: bool = False,
) -> KeyScope:
    """The scope of a key. An empty list is no limit. Raises BadInput naming the field."""
    if role not in tuple(KeyRole):
        raise BadInput(f"role: must be one of {', '.join(KeyRole)}, not {role!r}", param="role")
    for name, given in (("models", models), ("endpoints", endpoints), ("networks", networks)):
        if given and len(given) > MOST_LISTED:
            raise BadInput(f"{name}: at most {MOST_LISTED} may be listed", param=name)
    for endpoint in endpoints or ():
        if not endpoint.startswith("/v1/"):
            raise BadInput(
                f"endpoints: {endpoint!r} must begin with /v1/, like /v1/chat/completions", param="endpoints"
            )
    try:
        found = networks_of(networks) if networks else None
    except ValueError as error:
        raise BadInput(f"networks: {error}", param="networks") from None
    names = frozenset(_model(catalogue, name) for name in models) if models else None
    return KeyScope(KeyRole(role), names, frozenset(endpoints) if endpoints else None, found, restore)


def _model(catalogue: Catalogue, name: str) -> str:
    model = catalogue.resolve(name)
    if model is None:
        raise BadInput(f"models: {catalogue.unknown(name)}", param="models")
    return model.name


def name_of(given: str) -> str:
    """The name of a key, without spaces around it. Raises BadInput."""
    if not 1 <= len(name := given.strip()) <= LONGEST_NAME or not name.isprintable():
        raise BadInput(f"name: must be 1 to {LONGEST_NAME} printable characters", param="name")
    return name


def check_limits(requests: int | None, tokens: int | None) -> None:
    """Raise BadInput unless these can be the limits of a key for each minute. None: as the settings say."""
    for name, given, most in (("requests", requests, MOST_REQUESTS), ("tokens", tokens, MOST_TOKENS)):
        if given is not None and not 1 <= given <= most:
            raise BadInput(f"{name}: must be 1 to {most:,} a minute", param=name)


def lifetime_of(expires: str, now: datetime) -> timedelta:
    """How long something lives that expires so: after a length of time (`90d`), or at the end of a day (`2027-03-31`, UTC).

    Raises BadInput.
    """
    seconds = seconds_of(expires)
    if seconds is None:
        try:
            last = date.fromisoformat(expires)
        except ValueError:
            raise BadInput(
                f"expires: {expires!r} is neither a length of time like 90d nor a day", param="expires"
            ) from None
        seconds = (datetime.combine(last, time(), UTC) - now).total_seconds() + 86_400
    if not 0 < seconds <= LONGEST_DAYS * 86_400:
        raise BadInput(f"expires: {expires!r} must be in the future, within {LONGEST_DAYS} days", param="expires")
    return timedelta(seconds=seconds)
