"""A queue of items in the form of the Responses API, from submit to poll."""

from typing import Any

import httpx

from tests.gpu.world import World

URL = "/client/v4/accounts/acme/ai/run/@cf/openai/gpt-oss-20b"


async def test_queued_items_are_answered_in_the_form_they_were_asked_in(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    items: list[dict[str, Any]] = [
        {"input": "one", "reasoning": {"effort": "low"}, "external_reference": "r"},
        {"input": [{"role": "user", "content": "two"}], "max_output_tokens": 40},
        {"messages": [{"role": "user", "content": "three"}]},
    ]
    made = await client.post(f"{URL}?queueRequest=true", json={"requests": items})
    assert made.status_code == 200, made.text
    request_id = made.json()["result"]["request_id"]
    async with world.worker():
        await world.until("exists (select from batch where finalized_at is not null)")
    found = (await client.post(URL, json={"request_id": request_id})).json()["result"]
    first, second, third = (each["result"] for each in found["responses"])
    assert [each["output"][0]["content"][0]["text"] for each in (first, second)] == ["echo: one", "echo: two"]
    assert third["choices"][0]["message"]["content"] == "echo: three"
    assert found["responses"][0]["external_reference"] == "r"
    assert first["usage"]["cost"] > 0
    assert found["usage"]["completion_tokens"] == 2 + 2 + third["usage"]["completion_tokens"]
    limits = {str(body.get("input")): body.get("max_output_tokens") for body in world.engine.bodies if "input" in body}
    assert sorted(limits.values()) == [40, 256]
