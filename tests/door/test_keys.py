"""Claims about a door that asks for keys: who may enter, limits, the operator's fields, and an API that does not answer."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from testing.waiting import eventually
from tests.door.conftest import CHAT, TOKEN, Inner, KeyApi, client_of
from workers.engine.door import keys
from workers.engine.door.keys import DoorKeys
from workers.engine.door.middleware import PAGE, Door
from workers.engine.door.settings import OUR_HEADER, DoorSettings
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

GOOD = {"authorization": "Bearer sk_sw_good"}
QUESTION = {"model": "m", "prompt": "hi"}
TOKENS = ("prompt_tokens", "completion_tokens")


async def passed(door: Door, **headers: str) -> httpx.Response:
    async with client_of(door, **headers) as client:
        return await client.post(CHAT, json=QUESTION)


@pytest.mark.parametrize("shown", [{}, {"authorization": "sk_sw_good"}, {"authorization": "Bearer sk_sw_bad"}])
async def test_without_a_live_key_nobody_computes(keyed: Door, inner: Inner, shown: dict[str, str]) -> None:
    answer = await passed(keyed, **shown)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == 401
    assert not inner.seen
    async with client_of(keyed, **shown) as client:
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/health")).status_code == 200


async def test_with_a_key_the_engine_sees_its_own_key_and_no_field_of_the_operator(keyed: Door, inner: Inner) -> None:
    said = {**QUESTION, **dict.fromkeys(ENGINE_PRIVATE_FIELDS, "mine")}
    async with client_of(keyed, **GOOD) as client:
        answer = await client.post(CHAT, json=said, headers={"x-data-parallel-rank": "1"})
        tokens = await client.post("/tokenize", json={**QUESTION, "chat_template": "{{ 1 }}"})
    assert (answer.status_code, tokens.status_code) == (200, 200)
    assert [body for _, body in inner.seen] == [b'{"model": "m", "prompt": "hi"}'] * 2
    assert inner.headers[b"authorization"] == b"Bearer inner"
    assert b"x-data-parallel-rank" not in inner.headers
    assert list(keyed.usage.accounts) == ["acme"]
    assert keyed.usage.accounts["acme"].requests == 1


@pytest.mark.parametrize("unknown", [False, True])
async def test_a_key_that_the_api_would_not_read_opens_nothing_and_stops_no_other_key(
    inner: Inner, api: KeyApi, unknown: bool
) -> None:
    """A question that the API refuses would count as its outage, in which unknown keys may pass or must wait."""
    door = Door(inner, DoorSettings(token=TOKEN, api=api.url, pass_unknown=unknown))
    answer = await passed(door, authorization="Bearer " + "k" * (keys.MOST_KEY_BYTES + 1))
    assert answer.status_code == 401
    assert (api.asked, inner.seen) == ([], [])
    assert (await passed(door, **GOOD)).status_code == 200
    await door._keys.close()  # type: ignore[union-attr]


@pytest.mark.usefixtures("hurried")
async def test_a_length_that_no_body_has_neither_opens_the_door_nor_stops_the_renewals(
    keyed: Door, inner: Inner, api: KeyApi
) -> None:
    """The API refuses a count that is too large, and with it all keys of the same question."""
    api.keys["sk_sw_good"]["requests_per_minute"] = 100
    await passed(keyed, **GOOD, **{"content-length": "9" * 15})
    await passed(keyed, **GOOD, **{"content-length": "9" * 5000})
    await renewed(keyed, api)
    assert max(question["tokens"] for question in api.asked) <= keys.MOST_COUNT
    assert not keyed.usage.faults
    assert (await passed(keyed, **{"content-length": "9" * 5000})).status_code == 401


@pytest.mark.parametrize("name", ["sampling_params", "sampling\\u005fparams"])
async def test_sampling_parameters_lose_what_a_kv_connector_reads(keyed: Door, inner: Inner, name: str) -> None:
    body = f'{{"model":"m","{name}":{{"n":1,"extra_args":{{"kv_transfer_params":{{"remote_host":"x"}}}}}}}}'
    async with client_of(keyed, **GOOD) as client:
        assert (await client.post("/inference/v1/generate", content=body)).status_code == 200
        assert inner.body == {"model": "m", "sampling_params": {"n": 1}}
        await client.post("/inference/v1/generate", content='{"sampling_params": {"n":1} }')
        assert inner.seen[-1][1] == b'{"sampling_params": {"n":1} }'


async def test_the_key_of_an_account_does_not_operate_the_engine(keyed: Door, inner: Inner) -> None:
    async with client_of(keyed, **GOOD) as client:
        assert (await client.post("/v1/load_lora_adapter", json={})).status_code == 403
        assert (await client.post("/inference/v1/abort_requests", json={"request_ids": ["1"]})).status_code == 403
        assert not inner.seen
        ours = {OUR_HEADER.decode(): TOKEN}
        assert (await client.post("/v1/load_lora_adapter", json={}, headers=ours)).status_code == 200


async def test_a_websocket_needs_a_key_too(keyed: Door, inner: Inner) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    await keyed(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    await keyed({**scope, "headers": [(b"authorization", b"Bearer sk_sw_good")]}, receive, send)
    assert inner.kinds == ["websocket"]


async def test_a_key_is_asked_once_and_its_secret_never_again(keyed: Door, api: KeyApi) -> None:
    for _ in range(5):
        assert (await passed(keyed, **GOOD)).status_code == 200
    assert [question.get("token") for question in api.asked] == ["sk_sw_good"]
    assert api.shown == {f"Bearer {TOKEN}"}
    await renewed(keyed, api)
    assert [question.get("token") for question in api.asked[1:]] == [None] * (len(api.asked) - 1)
    assert b"sk_sw_good" not in repr(vars(keyed._keys)).encode()


async def renewed(door: Door, api: KeyApi, times: int = 1) -> None:
    """Wait until the keys in use were renewed."""

    count = len(api.asked)
    await eventually(lambda: len(api.asked) >= count + times)
    await asyncio.sleep(0.05)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals come soon."""
    monkeypatch.setattr(keys, "RENEW_SECONDS", 0.05)


@pytest.mark.usefixtures("hurried")
async def test_a_revoked_key_is_refused_after_a_renewal(keyed: Door, api: KeyApi) -> None:
    assert (await passed(keyed, **GOOD)).status_code == 200
    api.keys.clear()
    await renewed(keyed, api)
    assert (await passed(keyed, **GOOD)).status_code == 401


@pytest.mark.usefixtures("hurried")
async def test_old_answers_hold_while_the_api_does_not_answer(keyed: Door, api: KeyApi) -> None:
    assert (await passed(keyed, **GOOD)).status_code == 200
    api.status = 500
    await renewed(keyed, api)
    assert (await passed(keyed, **GOOD)).status_code == 200
    unknown = await passed(keyed, authorization="Bearer sk_sw_other")
    assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "2")
    api.status, api.keys["sk_sw_other"] = 200, {"key_id": "other", "account": "other"}
    await renewed(keyed, api)
    assert (await passed(keyed, authorization="Bearer sk_sw_other")).status_code == 200


async def test_an_old_answer_holds_for_an_hour_at_most_while_the_api_does_not_answer(
    keyed: Door, api: KeyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await passed(keyed, **GOOD)).status_code == 200
    api.status = 500
    for seconds, status in ((keys.HELD_SECONDS - 60, 200), (keys.HELD_SECONDS + 60, 503)):
        monkeypatch.setattr(keys, "monotonic", lambda later=seconds: time.monotonic() + later)
        assert (await passed(keyed, **GOOD)).status_code == status


async def test_an_unknown_key_may_pass_while_the_api_is_away_if_the_operator_says_so(inner: Inner) -> None:
    nobody = "http://127.0.0.1:9"
    for pass_unknown, status in ((False, 503), (True, 200)):
        door = Door(inner, DoorSettings(token=TOKEN, api=nobody, pass_unknown=pass_unknown))
        assert (await passed(door, **GOOD)).status_code == status
        assert not door.usage.faults
    assert not DoorSettings.of({}).pass_unknown


@pytest.mark.usefixtures("hurried")
async def test_a_limit_counts_what_others_let_in_and_is_reported(keyed: Door, api: KeyApi) -> None:
    entry = {"key_id": "good", "account": "acme", "requests_per_minute": 3, "requests": 0, "tokens": 0, "seconds": 30}
    api.keys["sk_sw_good"] = entry
    assert [(await passed(keyed, **GOOD)).status_code for _ in range(4)] == [200, 200, 200, 429]
    entry["requests"] = 3  # what the API counted: these
    await renewed(keyed, api)
    assert sum(question["requests"] for question in api.asked) == 3
    refused = await passed(keyed, **GOOD)
    assert refused.status_code == 429
    assert 25 <= int(refused.headers["retry-after"]) <= 30
    entry["requests"] = 0  # the next minute
    await renewed(keyed, api, 2)
    assert (await passed(keyed, **GOOD)).status_code == 200
    assert keyed.usage.refused[429] == 2


@pytest.mark.usefixtures("hurried")
async def test_tokens_are_limited_by_what_was_used(keyed: Door, api: KeyApi) -> None:
    entry = {"key_id": "good", "account": "acme", "tokens_per_minute": 12, "requests": 0, "tokens": 0, "seconds": 30}
    api.keys["sk_sw_good"] = entry
    statuses = [(await passed(keyed, **GOOD)).status_code for _ in range(3)]
    assert statuses == [200, 429, 429]  # a prompt of about 6 tokens, and an answer of 3
    await renewed(keyed, api)
    assert sum(question["tokens"] for question in api.asked) == 9
    async with client_of(keyed, **GOOD) as client:
        assert (await client.get("/v1/models")).status_code == 200


async def test_the_api_says_where_the_worker_listens(keyed: Door, api: KeyApi) -> None:
    api.worker = "http://127.0.0.1:1234"
    await passed(keyed, **GOOD)
    assert keyed._announcer.worker == api.worker


async def test_unknown_keys_fill_no_memory_and_displace_no_known_one(
    keyed: Door, api: KeyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MOST_KEYS", 8)
    await passed(keyed, **GOOD)
    for number in range(20):
        await passed(keyed, authorization=f"Bearer sk_sw_{number}")
    assert keyed._keys is not None
    assert (len(keyed._keys._denied), len(keyed._keys._entries)) == (8, 1)


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("injected")


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "keys": lambda m: m.setattr(DoorKeys, "enter", broken),
    "headers": lambda m: m.setattr("workers.engine.door.middleware.ENGINE_PRIVATE_HEADERS", None),
}


@pytest.mark.parametrize("step", BREAKS)
async def test_an_error_of_the_door_harms_no_request(
    keyed: Door, inner: Inner, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    BREAKS[step](monkeypatch)
    assert (await passed(keyed, **GOOD)).status_code == 200
    assert keyed.usage.faults[step] == 1


@pytest.mark.parametrize(
    "said", [b"[]", b"{}", b'{"keys": []}', b'{"keys": [7]}', b"\xff", b'{"keys": [{"account": 5}]}']
)
async def test_nonsense_from_the_api_harms_nobody(
    keyed: Door, api: KeyApi, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:

    async def answers(self: DoorKeys, questions: Any) -> Any:
        return json.loads(said)

    monkeypatch.setattr(DoorKeys, "_answers", answers)
    assert (await passed(keyed, **GOOD)).status_code in (200, 503)


async def test_the_page_needs_no_key(keyed: Door) -> None:
    async with client_of(keyed, **{OUR_HEADER.decode(): TOKEN}) as client:
        assert (await client.get(PAGE)).status_code == 200


async def test_the_api_is_told_once_what_was_answered(
    keyed: Door, api: KeyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "RENEW_SECONDS", 0.05)
    for _ in range(3):
        assert (await passed(keyed, **GOOD)).status_code == 200
    await eventually(lambda: sum(question["answered"] for question in api.asked) >= 3)
    await asyncio.sleep(0.2)
    sums = {name: sum(question[name] for question in api.asked) for name in ("answered", *TOKENS)}
    assert sums == {"answered": 3, "prompt_tokens": 33, "completion_tokens": 9}
