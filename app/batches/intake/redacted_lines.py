"""Redacts the lines of an uploaded batch file before they are spooled. Pure.

A redacted line has one more field, `vault`: the sealed values of the placeholders in its body. They go with the line into a
batch. A line that is no JSON object is replaced by one that has the same problem and no content.
"""

import base64

import orjson

from app.admission.redaction import Redaction
from app.batches.validation import strict_json
from app.batches.validation.openai_lines import VAULT
from app.errors import SensitiveFound
from app.policy import vaults

_NOT_JSON, _NO_OBJECT = b"?", b"[]"


def redacted(redaction: Redaction, text: bytes, number: int) -> bytes:
    """The line with this number, without a line end. Raises SensitiveFound."""
    if not text.strip():
        return b""
    try:
        given = strict_json.loads(text)
    except strict_json.JsonError:
        return _NOT_JSON
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
    line = {name: given[name] for name in ("custom_id",) if name in given} | rest.item
    if "body" in given:
        line["body"] = body.item
    if rest.values:
        line[VAULT] = base64.b64encode(redaction.vaults.sealed(rest.values, vaults.OF_FILE)).decode()
    return orjson.dumps(line)
