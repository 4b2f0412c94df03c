"""W3C trace context (https://www.w3.org/TR/trace-context/): what comes in with a request goes out with what it causes. Pure.

Slackwater records no spans of its own. Each hop keeps the caller's trace id and flags and names itself as the parent.
"""

import re
import secrets

HEADER = "traceparent"
_FORM = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")


def parse(header: str | None) -> str | None:
    """The header if it is valid, else None: a broken one is as good as none."""
    return header if header is not None and _FORM.fullmatch(header) else None


def onward(traceparent: str | None) -> dict[str, str]:
    """The header of a call made on behalf of `traceparent`; none without one."""
    found = _FORM.fullmatch(traceparent or "")
    return {HEADER: f"00-{found[1]}-{secrets.token_hex(8)}-{found[2]}"} if found else {}
