"""Which addresses webhooks may go to, by SLACKWATER_WEBHOOK_ALLOW_PRIVATE. Pure."""

from dataclasses import replace
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_network

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
_RULES: dict[PrivateTargets, str] = {
    "off": "must be https on port 443 of a public address, without credentials",
    "loopback": "must be https on port 443 of a public address, or http or https on a loopback address, without credentials",
    "all": "must be https on port 443 of a public address, or http or https on a private or loopback one, without credentials",
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


def reason(allows: PrivateTargets) -> str:
    """The rule and, for the operator, the setting that can change it."""
    more = _MORE[allows]
    return _RULES[allows] + (f" (SLACKWATER_WEBHOOK_ALLOW_PRIVATE is {allows}; {more})" if more else "")
