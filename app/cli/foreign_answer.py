"""What a command says of an answer that the API did not write: a proxy before it did, or another program."""

import httpx

from app.engines.answer_faults import first_line
from app.sentences import ended
from app.user_errors import Failure

# By status: what a proxy has done that answers so, and what to do about it.
_OF_PROXIES = {
    **dict.fromkeys(
        (401, 407), ("asks for a login of its own", "Log in there, or use the address of the API itself.")
    ),
    403: ("refuses the request", "Ask who runs it to let the request pass, or use the address of the API itself."),
    **dict.fromkeys(
        (408, 504),
        ("has waited too long for the API", "Raise its limit (nginx: `proxy_read_timeout`), or see whether the API is up."),
    ),
    413: ("takes no body of this size", "Raise its limit (nginx: `client_max_body_size`), or send less at once."),
    429: ("takes no more requests now", "Wait a little, or raise its limit."),
    **dict.fromkeys(
        (502, 503), ("cannot reach the API", "See whether the API is up, and correct the address that the proxy has of it.")
    ),
}  # fmt: skip


def failure(answer: httpx.Response, api: str, remedy: str) -> Failure:
    """The Failure for an answer whose body is read. `api`: whose form it does not have. `remedy`: if nothing more is known."""
    said = f"{answer.request.url} answered {answer.status_code}, but not as {api} does"
    if answer.has_redirect_location:
        return Failure(
            f"{said}: it redirects to {answer.headers['location']}.", f"{remedy} Name that address, if you trust it."
        )
    what, fix = _OF_PROXIES.get(answer.status_code, ("", remedy))
    line = first_line(answer.text)
    done = f": a proxy before it {what}" if what else ""
    return Failure(f"{said}{done}." + (f" It says: {ended(line)}" if line else ""), fix)
