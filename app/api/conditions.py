"""What the conditional headers of a request say of a content with a strong entity tag (RFC 9110, sections 8.8.3 and 13). Pure.

A content without a tag is none of those that a header names. Times of change are not kept, so conditions on them are ignored.
"""

import re

from starlette.datastructures import Headers

_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def has_changed(headers: Headers, tag: str | None) -> bool:
    """Whether If-Match forbids the request: status 412."""
    return _names(headers, "if-match", tag, weak=False) is False


def is_known(headers: Headers, tag: str | None) -> bool:
    """Whether If-None-Match says that the caller has this content: status 304."""
    return _names(headers, "if-none-match", tag, weak=True) is True


def may_continue(headers: Headers, tag: str | None) -> bool:
    """Whether If-Range lets a range of this content follow on what the caller has."""
    given = headers.get("if-range")
    return given is None or given.strip() == tag


def _names(headers: Headers, name: str, tag: str | None, *, weak: bool) -> bool | None:
    """Whether a header names the content by its tag, or any by `*`; None: there is no such header. `weak`: weak tags count."""
    if not (given := headers.getlist(name)):
        return None
    tags = _TAG.findall(", ".join(given))
    return given == ["*"] or any(each == tag for is_weak, each in tags if weak or not is_weak)
