"""Which tools a request may offer and its answer may call, and which hosts these calls may name, by the rules that matched it.
Pure.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from app import host_lists
from app.policy import destinations
from app.policy.denials import Denial, denial

# The form that OpenAI asks of a tool's name. A model may write any other text there, which belongs into no log.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools that one rule names, and whom to ask about it."""

    rule_id: str
    contact: str | None
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class ToolTerms:
    """`allowed`: the only tools. `denied`: tools that are none. `hosts`: the only ones that arguments may name. None: no rule has
    such a list.
    """

    allowed: ToolList | None = None
    denied: ToolList | None = None
    hosts: ToolList | None = None

    def of_request(self, tools: Collection[str]) -> Denial | None:
        """Why a request may not offer these tools. None: it may."""
        for name in sorted(tools):
            if (rule := self._against(name)) is not None:
                return denial(rule, f"does not allow {_shown(name)}")
        return None

    def of_call(self, name: str) -> Denial | None:
        """Why a call of this tool, which a model has returned, is withheld. None: it may pass."""
        rule = self._against(name.strip())
        if rule is None:
            return None
        return denial(rule, f"does not allow {_shown(name.strip())}; the model's call of it was withheld")

    def of_arguments(self, name: str, arguments: Any) -> Denial | None:
        """Why a call with these arguments is withheld: JSON, any text, or a value. None: it may pass."""
        if self.hosts is None:
            return None
        tool = _shown(name.strip())
        try:
            if all(host_lists.lists(self.hosts.names, host) for host in destinations.named_in(arguments)):
                return None
        except destinations.Unreadable:
            what = f"asks which hosts the model's call of {tool} names, and its arguments are no valid JSON"
            return denial(self.hosts, f"{what}; the call was withheld")
        return denial(self.hosts, f"does not list a host that the model's call of {tool} names; the call was withheld")

    def _against(self, name: str) -> ToolList | None:
        if self.allowed is not None and name not in self.allowed.names:
            return self.allowed
        if self.denied is not None and name in self.denied.names:
            return self.denied
        return None

    def as_json(self) -> dict[str, Any]:
        """The form in which a batch keeps them."""
        lists = {"allow": self.allowed, "deny": self.denied, "hosts": self.hosts}
        return {name: _kept(found) for name, found in lists.items() if found is not None}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """The terms that a batch has kept."""
        return cls(*(_read(kept[name]) if name in kept else None for name in ("allow", "deny", "hosts")))


NO_TERMS = ToolTerms()


def _kept(tools: ToolList) -> dict[str, Any]:
    contact = {"contact": tools.contact} if tools.contact else {}
    return {"rule": tools.rule_id, "tools": sorted(tools.names), **contact}


def _read(kept: Mapping[str, Any]) -> ToolList:
    return ToolList(kept["rule"], kept.get("contact"), frozenset(kept["tools"]))


def _shown(name: str) -> str:
    return f"the tool {name}" if _NAME.fullmatch(name) else "a tool whose name is none"
