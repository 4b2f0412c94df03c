"""What an API key may do: its role, the models, endpoints and networks that it is limited to, and how much a minute. Pure.

viewer      sees states, counts, usage and budgets of the account, but no prompt and no answer
submitter   runs and queues requests, reads their answers, and pauses, retries and cancels batches
admin       also changes webhooks and budgets of the account

Each role may do what the roles before it may.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Network = IPv4Network | IPv6Network


class KeyRole(StrEnum):
    """What a key may do in its account. The order is that of the rights."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def includes(self, other: "KeyRole") -> bool:
        """Whether this role may do all that the other one may."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {role: place for place, role in enumerate(KeyRole)}


@dataclass(frozen=True, slots=True)
class KeyScope:
    """The limits of one key. None: no limit of this kind.

    `models`: names of the catalogue that a request may name. `endpoints`: routes of engines, like `/v1/chat/completions`.
    `restore`: whether what redaction has replaced is put back when this key reads it.
    """

    role: KeyRole = KeyRole.SUBMITTER
    models: frozenset[str] | None = None
    endpoints: frozenset[str] | None = None
    networks: tuple[Network, ...] | None = None
    restore: bool = False

    @property
    def limits_requests(self) -> bool:
        """Whether a request has to be looked at to know if the key may send it."""
        return self.models is not None or self.endpoints is not None

    @property
    def reads_bodies(self) -> bool:
        """Whether the key may read prompts and answers, and messages that may quote one."""
        return self.role.includes(KeyRole.SUBMITTER)

    def may_ask(self, model: str) -> bool:
        """Whether a request of the key may name this model."""
        return self.models is None or model in self.models

    def may_use(self, endpoint: str) -> bool:
        """Whether a request of the key may go to this endpoint."""
        return self.endpoints is None or endpoint in self.endpoints

    def may_come_from(self, address: str | None) -> bool:
        """Whether the key may be used from this address. None: the address is not known."""
        if self.networks is None:
            return True
        try:
            found = ip_address(address or "")
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self.networks)


EVERYTHING = KeyScope(KeyRole.ADMIN)
USUAL = KeyScope()  # of a new key


def networks_of(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks in CIDR form; an address is the network of this address alone. Raises ValueError, which names the text."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text.strip()))
        except ValueError as error:
            raise ValueError(f"{text}: {error}; write a network like 10.1.0.0/16 or an address") from None
    return tuple(found)


def described(scope: KeyScope) -> dict[str, Any]:
    """A scope as JSON shows it. None: no limit of this kind."""
    return {
        "role": scope.role.value,
        "models": None if scope.models is None else sorted(scope.models),
        "endpoints": None if scope.endpoints is None else sorted(scope.endpoints),
        "networks": None if scope.networks is None else [str(network) for network in scope.networks],
        "restore": scope.restore,
    }


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one key per minute. None: no limit. `tokens`: estimated, prompt and answer together."""

    requests: int | None = None
    tokens: int | None = None
