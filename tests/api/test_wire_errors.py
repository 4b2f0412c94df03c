"""What people send by mistake, and what each of them reads: the form of the API that was called, the reason, what to do."""

import gzip
import json
import re
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.in_process import running
from tests.api.support import MODEL, RUN, SUBMIT, line
from tests.gateway.support import Registry

CHAT = "/v1/chat/completions"
ACCOUNT = "/client/v4/accounts/acme/ai"
JSON, NDJSON = {"content-type": "application/json"}, {"content-type": "application/x-ndjson"}
GOOD = (line(1) + line(2)).decode()
LINES = [json.loads(each) for each in GOOD.splitlines()]
NO_JSONL = "Invalid file format for Batch API. Must be .jsonl. "
NO_JSON = "This line is not parseable as valid JSON: "
FILES = {
    "UTF-16": (GOOD.encode("utf-16"), NO_JSONL + "The file is text in UTF-16; send it as UTF-8"),
    "UTF-16 without a mark": (
        GOOD.encode("utf-16-be"),
        NO_JSONL + "The file is text in UTF-16, or binary; send it as UTF-8",
    ),
    "UTF-32": (GOOD.encode("utf-32"), NO_JSONL + "The file is text in UTF-32; send it as UTF-8"),
    "UTF-32 without a mark": (
        GOOD.encode("utf-32-le"),
        NO_JSONL + "The file is text in UTF-32, or binary; send it as UTF-8",
    ),
    "Latin-1": (
        b'{"a":"\xe9"}\n',
        f"{NO_JSONL}Line 1: {NO_JSON}the byte 0xe9 at column 7 is not UTF-8; send it as UTF-8 (it may be Latin-1)",
    ),
    "gzip": (gzip.compress(GOOD.encode()), NO_JSONL + "The file is compressed with gzip; send it uncompressed"),
    "lz4": (b"\x04\x22\x4d\x18\x64\n", NO_JSONL + "The file is compressed with lz4; send it uncompressed"),
    "brotli": (
        b"\x0b\x02\x80{}\n\x03",
        NO_JSONL + "The file is binary, or compressed, as with brotli; send text, uncompressed",
    ),
    "tar": (b"in.jsonl".ljust(257, b"\0") + b"ustar", NO_JSONL + "The file is a tar archive; send the text itself"),
    "zip": (b"PK\x03\x04", NO_JSONL + "The file is a ZIP archive, or an office document such as .xlsx; send the text itself"),
    "HTML": (b"<html>\n</html>", NO_JSONL + "The file is HTML or XML; send JSON"),
    "an array": (
        json.dumps(LINES).encode(),
        NO_JSONL
        + "The file is one JSON array; put each of its elements on a line of its own, without a comma (`jq -c '.[]' FILE`)",
    ),
    "an array by lines": (
        b"[\n" + b",\n".join(line(n).strip() for n in range(3)) + b"\n]",
        NO_JSONL
        + "The file is one JSON array; put each of its elements on a line of its own, without a comma (`jq -c '.[]' FILE`)",
    ),
    "pretty": (
        json.dumps(LINES[0], indent=2).encode(),
        NO_JSONL + "The file is JSON over several lines; put each request on one line (`jq -c . FILE`)",
    ),
    "lines of a Mac": (
        GOOD.replace("\n", "\r").encode(),
        NO_JSONL + "The file is text whose lines end in CR; end them in LF",
    ),
    "prose": (
        b"Hello there\nand more\n",
        NO_JSONL + "The file is plain text, such as CSV; put a JSON object on each line",
    ),
    "quoted CSV": (
        b'"id","text"\n"1","x"\n',
        NO_JSONL + "The file is plain text, such as CSV; put a JSON object on each line",
    ),
    "numbered CSV": (
        b"1,x\n2,y\n",
        NO_JSONL + "The file is plain text, such as CSV; put a JSON object on each line",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", NO_JSONL + "The file is a PNG image; send JSON"),
    "a photograph": (b"\xff\xd8", NO_JSONL + "The file is a JPEG image; send JSON"),
    "YAML": (b"model: m\nprompt: hi\n", NO_JSONL + "The file is YAML; send JSON"),
    "an array after a mark": (
        b"\xef\xbb\xbf" + json.dumps(LINES, indent=1).encode(),
        NO_JSONL
        + "The file is one JSON array; put each of its elements on a line of its own, without a comma (`jq -c '.[]' FILE`)",
    ),
    "an array in each line": (b"[1]\n[2]", f"{NO_JSONL}Line 1: This line is not a JSON object, but an array"),
    "nulls": (b"null\nnull", f"{NO_JSONL}Line 1: This line is not a JSON object, but null"),
    "strings": (b'"a"\n"b"', f"{NO_JSONL}Line 1: This line is not a JSON object, but a string"),
    "nothing": (
        b"",
        "Invalid file format for Batch API. The file is empty; it needs a request in each line",
    ),
    "blank lines": (
        b"\n \n",
        "Invalid file format for Batch API. The file has only empty lines; it needs a request in each line",
    ),
}  # fmt: skip

FORMS = {
    name: said.removeprefix(NO_JSONL) for name, (_, said) in FILES.items() if said.startswith(NO_JSONL + "The file")
}

PLACE = "(column N)"
# By what stands in the place of "x": the reason, whose column depends on the route.
TEXTS = {
    r'"\ud83d"': r"\ud83d at column N is half of a surrogate pair, which is no character; send the pair, or \ufffd",
    r'"a\udc00b"': r"\udc00 at column N is half of a surrogate pair, which is no character; send the pair, or \ufffd",
    r'"a\u0000"': "a string contains the character \\u0000, which cannot be stored; remove it (messages[0].content)",
    "NaN": f"NaN is not JSON; send a number or null {PLACE}",
    '"é","k":NaN': f"NaN is not JSON; send a number or null {PLACE}",
    "-Infinity": f"-Infinity is not JSON; send a number or null {PLACE}",
    "None": f"None is not JSON; send null {PLACE}",
    "'x'": f"single or curly quotes; put strings and keys in double quotes {PLACE}",
    '"x",': f"a comma after the last entry; remove it {PLACE}",
    '"x","role":"user"': "the key 'role' occurs twice in one object; keep one (messages[0])",
    '"x': f"it ends within a string; close the string with a double quote, or send all of it {PLACE}",
    '"\udce9"': "the byte 0xe9 at column N is not UTF-8; send it as UTF-8 (it may be Latin-1)",
    "[" * 70 + "]" * 70: "nested deeper than 64 levels, the limit (messages[0].content…)",
    "nothing": f"a word without quotes; put strings in double quotes {PLACE}",
    '"x" // y': f"a comment, which JSON does not have; remove it {PLACE}",
    "*": f"not a value; put a string in double quotes, a number, true, false, null, an array or an object there {PLACE}",
    ".5": f"a number that begins with its point; put a 0 before it {PLACE}",
    '"x" "role":"user"': f"a missing comma; put one between two entries {PLACE}",
    "[" * 2000: f"nested deeper than 64 levels, the limit {PLACE}",
    "[" * 2000 + "]" * 2000: f"nested deeper than 64 levels, the limit {PLACE}",
}  # fmt: skip


# What is JSON, and is not called anything else.
REFUSED = re.compile("occurs twice|nested deeper|which cannot be stored")


def alike(message: str) -> str:
    """A message without what depends on the route."""
    assert not REFUSED.search(message) or "valid JSON" not in message
    bare = re.sub(r"content[\[0\]]+…", "content…", re.sub(r"column \d+", "column N", message)).replace("(body.", "(")
    bare = bare.removeprefix("Bad input: ").removeprefix("line 2 (requests[1]): ").removeprefix(NO_JSON)
    bare = bare.removeprefix("This line is refused: ")
    return bare.removeprefix("not valid JSON: ").rstrip(".")


async def upload(client: httpx.AsyncClient, content: bytes) -> httpx.Response:
    return await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})


async def test_a_file_that_is_no_lines_of_json_is_called_what_it_is(client: httpx.AsyncClient) -> None:
    told = {name: await upload(client, content) for name, (content, _) in FILES.items()}
    assert {name: answer.status_code for name, answer in told.items()} == dict.fromkeys(FILES, 400)
    assert {name: answer.json()["error"] for name, answer in told.items()} == {
        name: {"message": said, "type": "invalid_request_error", "param": None, "code": None}
        for name, (_, said) in FILES.items()
    }


async def test_a_body_of_lines_that_has_none_is_called_what_it_is(client: httpx.AsyncClient) -> None:
    bodies = {name: FILES[name][0] for name in FORMS} | {"blank lines": b"\n \n"}
    told = {name: await client.post(SUBMIT, content=content, headers=NDJSON) for name, content in bodies.items()}
    assert {name: answer.json()["errors"] for name, answer in told.items()} == {
        name: [{"code": 5006, "message": said}]
        for name, said in (
            *((name, said.replace("The file is", "The body is")) for name, said in FORMS.items()),
            ("blank lines", "requests: the body has only empty lines; it needs an item in each line"),
        )
    }


async def test_a_byte_order_mark_before_utf_8_and_lines_that_end_in_crlf_are_taken(client: httpx.AsyncClient) -> None:
    answer = await upload(client, GOOD.replace("\n", "\r\n").encode("utf-8-sig"))
    assert (answer.status_code, answer.json()["status_details"]) == (200, None)


async def test_a_compressed_body_is_refused_by_its_name_whatever_the_route(client: httpx.AsyncClient) -> None:
    form = client.build_request("POST", "/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", line(1))})
    form.headers["content-encoding"] = "gzip"
    told = [
        await client.send(form),
        await client.post(CHAT, content=b"{}", headers=JSON | {"content-encoding": "gzip"}),
    ]
    assert {answer.status_code for answer in told} == {415}
    said = "Content-Encoding 'gzip' is not accepted; send the body uncompressed"
    assert {answer.json()["error"]["message"] for answer in told} == {said}


@pytest.mark.parametrize("plain", ["identity", "Identity", " IDENTITY "])
async def test_a_body_that_is_declared_uncompressed_is_taken_in_any_case(client: httpx.AsyncClient, plain: str) -> None:
    answer = await client.post(SUBMIT, json={"requests": [{"prompt": "x"}]}, headers={"content-encoding": plain})
    assert answer.status_code == 200, answer.text


def asked(content: str) -> bytes:
    """A request of a chat with this text as the content of its message."""
    whole = f'{{"messages":[{{"role":"user","content":{content}}}]}}'
    return whole.encode(errors="surrogateescape")


async def test_what_is_no_json_has_one_reason_on_every_route(client: httpx.AsyncClient) -> None:
    told = {text: [reason async for reason in _reasons(client, asked(text))] for text in TEXTS}
    assert told == {text: [reason] * 4 for text, reason in TEXTS.items()}


async def _reasons(client: httpx.AsyncClient, request: bytes) -> Any:
    """What is said of a request: as a call of either API, as a line of NDJSON, and as a line of a batch file."""
    answer = await client.post(CHAT, content=b'{"model":"%b",' % MODEL.encode() + request[1:], headers=JSON)
    yield alike(answer.json()["error"]["message"])
    answer = await client.post(RUN, content=request, headers=JSON)
    yield alike(answer.json()["errors"][0]["message"])
    answer = await client.post(SUBMIT, content=b'{"prompt":"x"}\n' + request, headers=NDJSON)
    yield alike(answer.json()["errors"][0]["message"])
    file = await upload(
        client, line(1) + b'{"custom_id":"2","method":"POST","url":"%b","body":%b}' % (CHAT.encode(), request)
    )
    wish = {"input_file_id": file.json()["id"], "endpoint": CHAT, "completion_window": "24h"}
    [problem] = (await client.post("/v1/batches", json=wish)).json()["errors"]["data"]
    assert (problem["code"], problem["line"], problem["param"]) == ("invalid_json_line", 2, None)
    message = problem["message"]
    assert message.startswith("This line is refused: " if REFUSED.search(message) else NO_JSON)
    yield alike(message)


BASE = "Correct the client's base_url"
PATHS = {
    "/chat/completions": f"did you mean /v1/chat/completions? {BASE}",
    "/v1/v1/chat/completions": f"did you mean /v1/chat/completions? {BASE}",
    "/v2/chat/completions": f"did you mean /v1/chat/completions? {BASE}",
    "/v1/chat/completions/": "did you mean /v1/chat/completions?",
    "/openai/deployments/x/chat/completions": f"did you mean /v1/chat/completions? {BASE}",
    "/files": f"did you mean /v1/files? {BASE}",
    "/batches/batch_1": f"did you mean /v1/batches/batch_1? {BASE}",
    "/v1/v1/batches/batch_1/cancel": f"did you mean /v1/batches/batch_1/cancel? {BASE}",
    "/api/v1/conversations/conv_1/items/msg_1": f"did you mean /v1/conversations/conv_1/items/msg_1? {BASE}",
    "/models/a/b": f"did you mean /v1/models/a/b? {BASE}",
    f"{ACCOUNT}/chat/completions": f"did you mean {ACCOUNT}/v1/chat/completions? {BASE}",
    f"{ACCOUNT}/files/file-1": f"did you mean {ACCOUNT}/v1/files/file-1? {BASE}",
    "/v1/chat/completion": "did you mean /v1/chat/completions?",
    "/v1/batch/batch_1": "did you mean /v1/batches/batch_1?",
    "/response": f"did you mean /v1/responses? {BASE}",
    "/v1/audio/speech": "GET /openapi.json lists the routes",
    f"{ACCOUNT}/v1/nothing": "GET /openapi.json lists the routes",
    "/nothing": "GET /openapi.json lists the routes",
}
OF_CLOUDFLARE = (
    f"{ACCOUNT}/nothing",
    f"{ACCOUNT}/batches/1/2/nothing",
    f"{ACCOUNT}/models/nothing",
    "/client/v4/files",
    "/operator/files",
)


async def test_a_client_with_a_wrong_base_url_reads_the_right_one(client: httpx.AsyncClient) -> None:
    told = {path: await client.post(path, json={}) for path in (*PATHS, *OF_CLOUDFLARE)}
    assert {answer.status_code for answer in told.values()} == {404}
    assert {path: told[path].json()["error"] for path in PATHS} == {
        path: {
            "message": f"Invalid URL (POST {path}); {hint}",
            "type": "not_found_error",
            "param": None,
            "code": "unknown_url",
        }
        for path, hint in PATHS.items()
    }
    models = (await client.get("/v1/models/")).json()["error"]
    assert models["message"] == "Invalid URL (GET /v1/models/); did you mean /v1/models?"
    for path in OF_CLOUDFLARE:
        said = f"Could not route to {path}, perhaps your object identifier is invalid?"
        assert told[path].json()["errors"] == [{"code": 7003, "message": said}]
        assert "error" not in told[path].json()


async def test_a_body_that_is_something_else_is_called_by_its_name(client: httpx.AsyncClient) -> None:
    for content, what in (
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "a JPEG image; send JSON"),
        (b"model: m\nprompt: hi\n", "YAML; send JSON"),
        (b"\xef\xbb\xbf<p>", "HTML or XML; send JSON"),
    ):
        answer = await client.post(CHAT, content=content, headers=JSON)
        assert answer.json()["error"]["message"] == f"Bad input: not valid JSON: it is {what}"


async def test_no_error_has_the_form_of_the_framework(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()["paths"]
    for path, operations in document.items():
        url = re.sub(r"\{[^}]*\}", "1", path.replace("{account_id}", "acme"))
        wrong = {
            each["name"]: "\n" for each in operations.get("get", {}).get("parameters", ()) if each["in"] == "query"
        }
        told = [await client.request("BREW", url), await client.post(url, content=b"{", headers=JSON)]
        told += [await client.get(url, params=wrong)] if wrong else []
        told += [await client.post(url, content=b"--x", headers={"content-type": "multipart/form-data; boundary=x"})]
        for answer in told:
            if answer.status_code >= 400:
                of_openai = not url.startswith(("/client/", "/admin/", "/operator/")) or "/ai/v1/" in url
                form = {"result", "success", "errors", "messages", *(["error"] if of_openai else [])}
                assert set(answer.json()) == form, (url, answer.text)


async def test_what_is_too_long_is_named_with_its_size_and_the_limit_of_the_operator(
    settings: Settings, key: str
) -> None:
    small = {"ndjson_line_mb": 0.001, "ndjson_body_mb": 0.01, "json_body_mb": 0.01}
    long = json.dumps(LINES[0] | {"more": "x" * 2000}).encode()
    said = (
        f"line 2 has {len(long):,} bytes, and a line may have at most 1,048; make it shorter, or ask the operator to raise "
        "SLACKWATER_NDJSON_LINE_MB"
    )
    async with running(settings.model_copy(update=small), key) as (_, client):
        for end in (b"", b"\n" + line(3)):
            told = await upload(client, line(1) + long + end)
            assert (told.status_code, told.json()["error"]["message"]) == (400, said)
            told = await client.post(SUBMIT, content=b'{"prompt":"x"}\n' + long + end, headers=NDJSON)
            assert (told.status_code, told.json()["errors"][0]["message"]) == (400, said)
        for told in (
            (await upload(client, json.dumps(LINES * 9).encode())).json()["error"],
            (await client.post(SUBMIT, content=json.dumps(LINES * 9), headers=NDJSON)).json()["errors"][0],
        ):
            assert told["message"].startswith(
                "The text is one JSON array; put each of its elements on a line of its own"
            )
        told = await upload(client, b"".join(line(n) for n in range(200)))
        assert told.json()["error"]["message"] == (
            "File is too large. It may have at most 0.01 MB; split it, or ask the operator to raise SLACKWATER_NDJSON_BODY_MB"
        )
        told = await client.post(CHAT, json={"model": MODEL, "more": "x" * 20_000})
        assert (told.status_code, told.json()["error"]["message"]) == (
            413,
            "Request is too large: this body may have at most 0.01 MB; make it smaller, or send several",
        )


async def test_stream_in_quotes_is_a_wrong_value_and_no_stream(client: httpx.AsyncClient) -> None:
    wrong = LINES[0]["body"] | {"stream": "false"}
    said = "must be true or false, got 'false'"
    refused = (await client.post(CHAT, json=wrong)).json()["error"]
    assert (refused["param"], refused["message"]) == ("stream", f"Bad input: stream: {said}")
    file = (await upload(client, line(2) + json.dumps(LINES[0] | {"body": wrong}).encode())).json()
    assert file["status_details"] == (
        f"line 2: Invalid value for 'body.stream': {said}. In a batch of this file only such lines fail."
    )


async def test_a_field_that_a_line_lacks_is_said_to_be_missing(client: httpx.AsyncClient) -> None:
    lacks = LINES[0]["body"] | {"messages": [{"content": "x"}]}
    file = (await upload(client, line(2) + json.dumps(LINES[0] | {"body": lacks}).encode())).json()
    assert file["status_details"].startswith(
        "line 2: Missing required parameter: 'body.messages[0].role'; it must be system, user, assistant, tool or another role"
    )


async def test_a_model_that_no_engine_serves_is_answered_with_those_that_are_served(
    settings: Settings, key: str, database: Database
) -> None:
    async with (
        FakeEngine(model="another") as engine,
        running(settings.model_copy(update={"line_seconds": 0.2}), key) as api,
    ):
        await Registry(database).ready(engine)
        told = await api[1].post(CHAT, json=LINES[0]["body"])
    assert (told.status_code, told.json()["error"]["message"]) == (
        503,
        f"No engine is ready to serve {MODEL} right now; please try again, or use a model that is served now: another.",
    )


@pytest.mark.parametrize("path", [CHAT, RUN])
async def test_a_page_that_something_before_the_engine_answers_is_reduced_to_words(
    client: httpx.AsyncClient, database: Database, path: str
) -> None:
    page = "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body><hr>nginx</body></html>"
    async with FakeEngine() as engine:
        engine.script({"mode": "status", "status": 413, "body": page})
        await Registry(database).ready(engine)
        item = LINES[0]["body"] if path == CHAT else {"prompt": "x"}
        told = await client.post(path, json=item)
    assert (told.status_code, told.json()["errors"][0]["message"]) == (400, "HTTP 413: 413 Request Entity Too Large")


WISH = {"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "24h"}
FIELDS: list[tuple[str, dict[str, Any], str, str, str]] = [
    (CHAT, {"messages": ["hi"]}, "invalid_value", "messages[0]", "must be an object with role and content, got 'hi'"),
    (CHAT, {"messages": "x", "temperature": True}, "invalid_value", "temperature", "number between 0 and 5, got true"),
    (CHAT, {}, "missing_required_parameter", "messages", "Bad input: messages: is missing"),
    *(
        (
            CHAT,
            {"messages": [message]},
            "missing_required_parameter",
            f"messages[0].{field}",
            f"{field}: is missing; it {must}",
        )
        for message, field, must in (
            ({"content": "x"}, "role", "must be system, user, assistant, tool or another role"),
            ({"role": "user", "content": [{"text": "x"}]}, "content[0].type", "must be text or image_url"),
            ({"role": "user", "content": [{"type": "text"}]}, "content[0].text", "must be a string"),
        )
    ),
    *(
        (CHAT, {"messages": [message]}, "invalid_value", f"messages[0].{field}", said)
        for message, field, said in (
            ({"role": None, "content": "x"}, "role", "got null"),
            (
                {"role": "user", "content": [{"type": "text", "text": None}]},
                "content[0].text",
                "must be a string, got null",
            ),
        )
    ),
    *(
        (CHAT, {"messages": [{"role": "user", "content": "x"}]} | {name: value}, "invalid_value", name, said)
        for name, value, said in (
            ("logit_bias", [1], 'must be an object of token ids and numbers like {"50256": -100}, got [1]'),
            ("logit_bias", {"a": 1}, "an object of token ids"),
            ("logprobs", 5, "must be true or false; top_logprobs is how many, got 5"),
            ("top_logprobs", 2, "needs logprobs: true"),
            ("user", 5, "must be a string, got 5"),
            ("metadata", {"a": 1}, "must be an object whose values are strings, got {'a': 1}"),
            ("tools", [{"type": "function"}], 'each must be like {"type": "function", "function": {"name": …}}, got'),
            ("tools", ["f"], "got 'f'"),
            ("tool_choice", "any", "must be none, auto, required or an object like"),
        )
    ),
    (
        "/v1/responses",
        {"model": MODEL},
        "missing_required_parameter",
        "input",
        "input: is missing; it must be a non-empty",
    ),
    (
        CHAT,
        {"messages": [{"role": "user", "content": "word " * 50_000}]},
        "context_length_exceeded",
        "messages",
        "which leaves no room for an answer in the context window",
    ),
    ("/v1/batches", WISH | {"endpoint": None}, "missing_required_parameter", "endpoint", "endpoint: is missing"),
    (
        "/v1/batches",
        WISH | {"completion_window": None},
        "missing_required_parameter",
        "completion_window",
        "is missing",
    ),
    (
        "/v1/batches",
        WISH | {"requests": [5], "input_file_id": None},
        "invalid_value",
        "requests[0]",
        "an object, got 5",
    ),
    ("/v1/batches", WISH | {"metadata": {"a": "x" * 600}}, "invalid_value", "metadata.a", "512 characters, got 600"),
    ("/v1/conversations", {"items": [5]}, "invalid_value", "items[0]", "items[0]: must be an object, not 5"),
    ("/v1/webhook_endpoints", {"url": "x"}, "missing_required_parameter", "name", "name: is missing"),
]


@pytest.mark.parametrize(
    ("path", "wish", "code", "param", "said"), FIELDS, ids=[f"{n} {f[0]} {f[3]}" for n, f in enumerate(FIELDS)]
)
async def test_a_wrong_field_is_named_with_its_code(
    client: httpx.AsyncClient, path: str, wish: dict[str, Any], code: str, param: str, said: str
) -> None:
    told = await client.post(path, json={"model": MODEL} | wish if path == CHAT else wish)
    error = told.json()["error"]
    assert (told.status_code, error["code"], error["param"]) == (400, code, param)
    assert said in error["message"]


async def test_each_list_names_its_limit(client: httpx.AsyncClient) -> None:
    for path, most in (("/v1/files", 10_000), ("/v1/batches", 100), ("/v1/webhook_endpoints", 100)):
        error = (await client.get(path, params={"limit": 0})).json()["error"]
        assert (error["param"], error["message"]) == ("limit", f"limit: must be 1 to {most}, got 0")


async def test_a_content_type_is_refused_with_those_that_the_route_takes(client: httpx.AsyncClient) -> None:
    told = await client.post(CHAT, content=b"{}", headers=NDJSON)
    said = "Content-Type must be application/json, got 'application/x-ndjson'"
    assert (told.status_code, told.json()["error"]["message"]) == (415, said)


async def test_a_verb_that_batches_do_not_have_is_an_unknown_path(client: httpx.AsyncClient) -> None:
    told = await client.post("/v1/batches/batch_1/stop")
    assert (told.status_code, told.json()["error"]["code"]) == (404, "unknown_url")
