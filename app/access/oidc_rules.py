"""Which role somebody has whom the identity provider knows: rules from a claim to a role. Without a rule, nobody has one. Pure.

    groups=platform -> operator; realm_access.roles=audit -> auditor; groups=acme-ml -> admin:acme

The first rule that matches holds. A claim is a text or a list of texts; `a.b` is the claim `b` inside `a`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.access.roles import Role

_RULE = re.compile(
    r"\s*(?P<claim>[^=\s]+)\s*=\s*(?P<value>.+?)\s*->\s*(?P<role>[a-z]+)(?::(?P<account>[A-Za-z0-9_-]{1,64}))?\s*"
)


class RuleError(ValueError):
    """A rule cannot be read. The message says which, and how to write it."""


@dataclass(frozen=True, slots=True)
class RoleRule:
    """One rule. `account`: of a role for one account."""

    claim: str
    value: str
    role: Role
    account: str | None = None


def parse(text: str) -> tuple[RoleRule, ...]:
    """The rules of a setting, separated by `;`. Raises RuleError."""
    return tuple(_parse(part) for part in text.split(";") if part.strip())


def _parse(text: str) -> RoleRule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise RuleError(f"{text.strip()!r} is no rule; write it like groups=platform -> operator")
    name, account = found["role"], found["account"]
    if name not in tuple(Role):
        raise RuleError(f"{text.strip()!r}: there is no role {name}; choose from {', '.join(Role)}")
    role = Role(name)
    if role.of_account != (account is not None):
        wanted = (
            f"write {name}:ACCOUNT" if role.of_account else f"{name} is of the whole installation, without an account"
        )
        raise RuleError(f"{text.strip()!r}: {wanted}")
    return RoleRule(found["claim"], found["value"], role, account)


def decide(rules: Sequence[RoleRule], claims: Mapping[str, Any]) -> RoleRule | None:
    """The rule that gives somebody with these claims a role. None: nobody has said that they may enter."""
    return next((rule for rule in rules if rule.value in _values(claims, rule.claim)), None)


def _values(claims: Mapping[str, Any], name: str) -> list[str]:
    """The texts of a claim. An e-mail address that the provider has not verified says nothing about who somebody is."""
    if name == "email" and claims.get("email_verified") is not True:
        return []
    found: Any = claims.get(name)
    if found is None and "." in name:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    return [value for value in values if isinstance(value, str)]
