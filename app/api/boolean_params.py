"""Parameters that are true or false."""

from app.errors import BadInput

TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")
WORDS = (*TRUE, *FALSE)


def parse(given: str | None, name: str) -> bool:
    """Whether a parameter is on; absent, it is off. Raises BadInput naming it."""
    if given is None:
        return False
    if given.lower() not in WORDS:
        raise BadInput(f"{name}: must be one of {', '.join(WORDS)}, got {given[:40]!r}", param=name)
    return given.lower() in TRUE
