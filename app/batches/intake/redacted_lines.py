"""Redacts the lines of a batch file before they are spooled, and those of one that is stored. Pure.

A redacted line has one more field, `vault`: the sealed values of the placeholders in its body. They go with the line into a
batch. A line that is no JSON object is replaced by one that has the same problem and no content.
"""

import base64
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from app.admission.redaction import Redaction
from app.admission.stored import kinds
from app.batches.validation import strict_json
from app.batches.validation.openai_lines import VAULT, WITHHELD, opens, vault_values
from app.errors import KeysUnavailable, SensitiveFound
from app.policy import vaults

_NO_OBJECT = b"[]"


def redacted(redaction: Redaction, text: bytes, number: int) -> bytes:
    """The line with this number, without a line end. Raises SensitiveFound."""
    if not text.strip():
        return b""
    try:
        given = strict_json.loads(text)
    except strict_json.JsonError:
        return WITHHELD
    if not isinstance(given, dict):
        return _NO_OBJECT
    try:
        redaction.check("custom_id", str(given.get("custom_id", "")))
        body = redaction.redact(given.get("body"))
        rest = redaction.redact(
            {name: value for name, value in given.items() if name not in ("body", "custom_id", VAULT)}, body.values
        )
    except SensitiveFound as refusal:
        refusal.message = f"line {number}: {refusal.message}"
        raise
    item = rest.item | ({"body": body.item} if "body" in given else {})
    return _line(redaction, given, item, rest.values)


def of_stored(redaction: Redaction, text: bytes) -> tuple[bytes, Counter[str]]:
    """A stored line without its values, and these by kind; the same text where it has none. Its `custom_id`
    stays. Raises TooManyValues, KeysUnavailable.
    """
    redactor = redaction.redactor
    try:
        given = strict_json.loads(text) if text.strip() else {}
    except strict_json.JsonError:
        hits = kinds(redactor.redact(text.decode(errors="replace")))
        return (WITHHELD if hits else text), hits
    if not isinstance(given, dict):
        hits = kinds(redactor.redact(given, of_engine=False))
        return (_NO_OBJECT if hits else text), hits
    if not opens(given.get(VAULT), redaction.vaults):
        raise KeysUnavailable("The values of the placeholders of a line cannot be read")
    redacting = redactor.over(vault_values(given.get(VAULT), redaction.vaults))
    rest = redacting.redact({name: value for name, value in given.items() if name not in ("body", "custom_id", VAULT)})
    body = redacting.redact(given.get("body"))
    if not (hits := kinds(rest) + kinds(body)):
        return text, hits
    item = rest.item | ({"body": body.item} if "body" in given else {})
    return _line(redaction, given, item, redacting.values), hits


def custom_id(text: bytes) -> str | None:
    """The `custom_id` of a line. None: it has none."""
    try:
        given = strict_json.loads(text) if text.strip() else None
    except strict_json.JsonError:
        return None
    found = given.get("custom_id") if isinstance(given, dict) else None
    return found if isinstance(found, str) else None


def _line(redaction: Redaction, given: dict[str, Any], item: dict[str, Any], values: Mapping[str, str]) -> bytes:
    """The line of these fields, with the vault of the values behind their placeholders."""
    line = {name: given[name] for name in ("custom_id",) if name in given} | item
    if values:
        line[VAULT] = base64.b64encode(redaction.vaults.sealed(values, vaults.OF_FILE)).decode()
    return orjson.dumps(line)
