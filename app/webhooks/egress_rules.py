"""Which addresses webhooks may go to, by SLACKWATER_WEBHOOK_ALLOW_PRIVATE, and how their URLs are written. Pure."""

import re
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from string import ascii_letters, digits, punctuation
from urllib.parse import SplitResult, quote, urlsplit

from ssrfguard import DEFAULT_DENIED, AddressTable, Block, Policy, Reach

from app.settings import PrivateTargets

_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))
_EXTRA_DENIED: tuple[tuple[IPv4Network | IPv6Network, str], ...] = (
    (ip_network("168.63.129.16/32"), "Azure WireServer"),
    (ip_network("fd20:ce::254/128"), "Cloud metadata (GCP over IPv6)"),
    (ip_network("::ffff:0:0:0/96"), "IPv4-translated (SIIT)"),
)
_EVERYTHING = (ip_network("0.0.0.0/0"), ip_network("::/0"))
SECURE = ("https", 443)
_AS_WRITTEN = ascii_letters + digits + punctuation  # all that a request line can carry
_BLANK = re.compile(r"[\0-\x20\x7f]")
_RULES: dict[PrivateTargets, str] = {
    "off": "must be https on port 443 of a public address, without credentials",
    "loopback": "must be https on port 443 of a public address, or http or https on a loopback address, without credentials",
    "all": "must be https on port 443 of a public address, or http or https on a private or loopback one, without credentials",
}
_NEAR: dict[PrivateTargets, str] = {
    "off": "",
    "loopback": "not a loopback one",
    "all": "neither a private nor a loopback one",
}
_MORE: dict[PrivateTargets, str] = {
    "off": "`loopback` adds receivers on the same machine, `all` also private networks",
    "loopback": "`all` adds private networks",
    "all": "",
}


@cache
def policies(allows: PrivateTargets) -> tuple[Policy, Policy]:
    """The policy for HTTPS on port 443, and the policy for http or another port."""
    extra = tuple(Block(network, name, "operator", Reach.DENIED) for network, name in _EXTRA_DENIED)
    denied = AddressTable((*DEFAULT_DENIED.blocks, *extra))
    if allows == "off":
        strict = Policy(frozenset({"https"}), denied, (), frozenset({443}), max_redirects=0)
        return strict, strict
    private = _PRIVATE if allows == "all" else ()
    # Metadata services in these networks keep their own rows: the narrowest row decides.
    denied = AddressTable(tuple(block for block in denied.blocks if block.network not in private))
    wide = Policy(frozenset({"http", "https"}), denied, _LOOPBACK, frozenset(range(1, 65536)), max_redirects=0)
    local = [block for block in denied.blocks if block.reach is Reach.DENIED]
    local += [Block(network, "public", "operator", Reach.DENIED) for network in _EVERYTHING]
    local += [Block(network, "private", "operator", Reach.PERMITTED) for network in private]
    return wide, replace(wide, denied_networks=AddressTable(tuple(local)))


def rule(allows: PrivateTargets) -> str:
    """What a URL must be."""
    return _RULES[allows]


def reason(allows: PrivateTargets, broken: str) -> str:
    """What of the URL breaks the rule, the rule, and for the operator the setting that can change it."""
    more = _MORE[allows]
    return f"{broken}; {rule(allows)}" + (f" (SLACKWATER_WEBHOOK_ALLOW_PRIVATE is {allows}; {more})" if more else "")


def unkept(url: str) -> str | None:
    """What of a URL no request carries as it is written, and what to do. None: nothing."""
    if found := _BLANK.search(url):
        what = "a space" if found[0] == " " else "a control character"
        return f"has {what} as character {found.start() + 1}; write it as %{ord(found[0]):02X}, or leave it out"
    if "#" in url:
        return "has a fragment, from `#` on, which no request carries; leave it out, or write `#` as %23"
    return None


def request_target(url: str) -> str:
    """The path and the query as they are written; only what is not ASCII is escaped."""
    written = urlsplit(url)
    mark = "?" if "?" in url.partition("#")[0] else ""  # also before an empty query
    return quote(f"{written.path or '/'}{mark}{written.query}", safe=_AS_WRITTEN)


def broken(allows: PrivateTargets, url: str, *, by_address: bool) -> str:
    """What of a URL breaks the rule: its scheme, its port, its host, or its address. `by_address`: where it leads was refused.

    It does not say to which address a name leads: that may be nobody's business.
    """
    try:
        written = urlsplit(url)
        port = written.port
    except ValueError as error:
        return f"this is not a valid URL: {error}"
    if (form := _form(written)) is not None:
        return form
    plain = ["the scheme is http"] if written.scheme.lower() == "http" else []
    plain += [f"the port is {port}"] if port not in (None, SECURE[1]) else []
    if plain and allows == "off":
        return " and ".join(plain)
    if not by_address:
        return "the host is not a plain name or address"
    where = f"the address is {_NEAR[allows]}" if plain else "the address is a private or special one"
    return " and ".join([*plain, where])


def _form(written: SplitResult) -> str | None:
    """What is wrong with a URL wherever it leads. None: nothing."""
    scheme = written.scheme.lower()
    if scheme not in ("http", "https"):
        return f"the scheme is {scheme[:20]}" if scheme else "the scheme is missing"
    if written.username is not None or written.password is not None:
        return "it has a user name or a password"
    return None if written.hostname else "the host is missing"
