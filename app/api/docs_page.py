"""The OpenAPI document as one HTML page without external scripts, fonts or styles. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Object = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: .2rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
code, pre { font: 14px/1.45 ui-monospace, monospace } code { overflow-wrap: anywhere }
pre { background: var(--soft); padding: .8rem; overflow-x: auto }
details { border-bottom: 1px solid var(--line) } summary { padding: .45rem 0; cursor: pointer }
summary b { display: inline-block; width: 4.2rem; font: 600 13px ui-monospace, monospace }
summary span { opacity: .75; margin-left: .8rem }
details > :not(summary) { margin-left: 1.2rem }
table { border-collapse: collapse; margin: .5rem 0 } th, td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0 }
th { font-weight: normal; white-space: nowrap }
@media (max-width: 40rem) { summary span { display: block; margin-left: 4.4rem } }
"""
QUERY = "x-example-query"  # field of an operation: the query of its example
_ACCOUNT = "/client/v4/accounts/{account_id}"
# Title of each part, and the prefix of its paths. OpenAI's routes also exist under the account; they are shown once.
_PARTS = (
    ("OpenAI", "/v1/"),
    ("Workers AI", f"{_ACCOUNT}/ai/"),
    ("Events and subscriptions", f"{_ACCOUNT}/event"),
    ("Operations", "/"),
)


def page(title: str, body: str) -> str:
    """A whole HTML page."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{body}</body></html>"
    )


def render(document: Object) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    intro = (
        f"<h1>{escape(info['title'])} API</h1><p>Version {escape(info['version'])}. {_prose(info['description'])} "
        "OpenAI's routes are the same under "
        f"<code>{_ACCOUNT}/ai/v1</code>. Every call has the header <code>Authorization: Bearer sk_sw_…</code>. "
        'For tools: <a href="/openapi.json">openapi.json</a>.</p>'
    )
    parts = {title: "" for title, _ in _PARTS}
    for method, path, operation in _shown(document):
        parts[next(title for title, begin in _PARTS if path.startswith(begin))] += _operation(
            document, method, path, operation
        )
    return page(
        f"{info['title']} API", intro + "".join(f"<h2>{title}</h2>{content}" for title, content in parts.items())
    )


def _shown(document: Object) -> Iterator[tuple[str, str, Object]]:
    for path, methods in document["paths"].items():
        if not path.startswith(f"{_ACCOUNT}/ai/v1/"):
            for method, operation in methods.items():
                yield method.upper(), path, operation


def _operation(document: Object, method: str, path: str, operation: Object) -> str:
    title = f"<summary><b>{method}</b><code>{escape(path)}</code><span>{escape(operation['summary'])}</span></summary>"
    parts = [f"<p>{_prose(operation.get('description', ''))}</p>", _parameters(operation), _fields(document, operation)]
    parts.append(f"<pre>{escape(_command(method, path, operation))}</pre>")
    return f"<details>{title}{''.join(parts)}</details>"


def _parameters(operation: Object) -> str:
    known = [each for each in operation.get("parameters", []) if each["in"] != "path"]
    return _table("Parameters", {each["name"]: (each["in"], _description(each, _schema(each))) for each in known})


def _schema(parameter: Object) -> Object:
    """The schema of a parameter, or of the JSON that it contains."""
    content: Object = parameter.get("content", {}).get("application/json", parameter)
    schema: Object = content["schema"]
    return schema


def _fields(document: Object, operation: Object) -> str:
    """The fields of the body, in all its forms."""
    content = operation.get("requestBody", {}).get("content", {})
    schema: Object = next(
        (kind["schema"] for kind in content.values() if "properties" in str(kind) or "$ref" in str(kind)), {}
    )
    found: dict[str, tuple[str, str]] = {}
    forms = [*_forms(document, schema)]
    needed = forms[0].get("required", []) if forms else []  # further forms are alternatives
    for form in forms:
        for name, field in form.get("properties", {}).items():
            found.setdefault(name, ("required" if name in needed else "", _description({}, field)))
    return _table("Body", found)


def _forms(document: Object, schema: Object) -> Iterator[Object]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield schema
    for each in [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]:
        yield from _forms(document, each)


def _description(parameter: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The description of a field, or else the values that it accepts."""
    text = parameter.get("description") or schema.get("description")
    if text:
        return str(text)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if forms := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(filter(None, (_description({}, form) for form in forms))))
    kind = schema.get("type", "")
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = "" if low is None else f", {low} or more" if high is None else f", {low} to {high}"
    return (" or ".join(kind) if isinstance(kind, list) else str(kind)) + bounds


def _table(title: str, rows: Mapping[str, tuple[str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f"<tr><th><code>{escape(name)}</code></th><td>{escape(where)}</td><td>{_prose(description)}</td></tr>"
        for name, (where, description) in rows.items()
    )
    return f"<p>{title}:</p><table>{cells}</table>"


def _command(method: str, path: str, operation: Object) -> str:
    """The call as a curl command; the user replaces the names in braces."""
    parts = ["curl" if method == "GET" else f"curl -X {method}", f'"$URL{path}{operation.get(QUERY, "")}"']
    if operation.get("security"):
        parts.append('-H "Authorization: Bearer $KEY"')
    content = operation.get("requestBody", {}).get("content", {})
    example = next((kind["example"] for kind in content.values() if "example" in kind), None)
    if "multipart/form-data" in content and example:
        parts += [f"-F {name}={value}" for name, value in example.items()]
    elif example is not None:
        parts += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example, indent=2)}'"]
    return " \\\n  ".join(parts)


def _prose(text: str) -> str:
    """The text as HTML, with code for the parts in backquotes."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False)).replace("\n\n", "<br>")
