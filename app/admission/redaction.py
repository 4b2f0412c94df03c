"""The redaction of one account's requests: what `admit` does to items, and what else may hold no sensitive value. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.detection.detectors import DetectorsDown
from app.errors import RedactionDown, SensitiveFound
from app.policy.placeholders import TooManyValues
from app.policy.redaction import Redacted, Redactor, SensitiveData
from app.policy.rules import Rule
from app.policy.vaults import Vaults

Hits = Mapping[tuple[str, str], int]  # by (kind, mode)


@dataclass(frozen=True, slots=True)
class Redaction:
    """By one rule, for one account. `hash_key`: of the hashes of its requests. `on_hits`: called with the hits of each item."""

    rule: Rule
    redactor: Redactor
    vaults: Vaults
    hash_key: bytes
    on_hits: Callable[[Hits], object]

    def redact(self, item: Any, values: Mapping[str, str] | None = None, *, of_engine: bool = True) -> Redacted:
        """See `Redactor.redact`. Raises SensitiveFound."""
        try:
            found = self.redactor.redact(item, values, of_engine=of_engine)
        except SensitiveData as error:
            self.on_hits({(error.kind, "refuse"): 1})
            raise self._refusal("the request", error.kind) from None
        except TooManyValues as error:
            raise SensitiveFound(f"The request has {error}; send it in parts") from None
        if found.hits:
            self.on_hits(found.hits)
        return found

    def for_stored(self) -> "Redaction":
        """The same for what is stored already: nobody is there to be refused, so what the rule refuses is removed."""
        assert self.rule.sensitive is not None
        given = self.rule.sensitive
        modes = {kind: "remove" if mode == "refuse" else mode for kind, mode in given.active().items()}
        return replace(self, redactor=Redactor(replace(given, usual="off", modes=modes)))

    def check(self, what: str, *texts: str | None) -> None:
        """Raise SensitiveFound where one of these texts, which are stored as they are, has a sensitive value."""
        for text in texts:
            if text and (kind := self.redactor.found(text)) is not None:
                self.on_hits({(kind, "refuse"): 1})
                raise self._refusal(what, kind)

    def scrubbed(self, text: str) -> str:
        """A text for an error or a log, without its sensitive values."""
        return self.redactor.scrubbed(text)

    def _refusal(self, what: str, kind: str) -> SensitiveFound:
        contact = f" Ask {self.rule.contact}." if self.rule.contact else ""
        return SensitiveFound(
            f"Policy rule {self.rule.rule_id} does not allow a value of the kind {kind} in {what}; nothing was stored.{contact}"
        )


def redaction_of(rule: Rule, vaults: Vaults, hash_key: bytes, on_hits: Callable[[Hits], object]) -> Redaction | None:
    """The redaction by a rule. None: it looks for nothing. Raises RedactionDown."""
    assert rule.sensitive is not None
    if not rule.sensitive.active():
        return None
    try:
        return Redaction(rule, Redactor(rule.sensitive), vaults, hash_key, on_hits)
    except DetectorsDown as error:
        raise RedactionDown(f"Requests of this account must be searched for sensitive values, and {error}") from None
