"""Claims about the pages of conversations: who sees what, how growth is told, and that what was said stays hidden."""

import re

import pytest

from app.access.roles import Role
from app.db.pool import Database
from tests.console import talks
from tests.console.conftest import SignIn
from tests.console.test_pages import entries
from tests.console.test_pipelines import shown

URL = "/console/conversations"


@pytest.mark.parametrize("role", list(Role))
async def test_every_role_sees_growth_and_nobody_what_was_said(database: Database, sign_in: SignIn, role: Role) -> None:
    talk = await talks.begin(database, name="support", turns=4, base=2)
    client = await sign_in(role)
    pages = [await shown(client, path) for path in (URL, f"{URL}/{talk}", f"{URL}/{talk}/turns/2")]
    assert "support" in pages[0]
    assert "+60" in pages[0]
    assert "A summary stands for the first 2 turns." in pages[1]
    assert "in the summary" in pages[1]
    for page in pages:
        assert "tides" not in page
        assert "the sea" not in page
    revealed = await client.post(f"{URL}/{talk}/turns/2/reveal", data={"reason": "a complaint"})
    assert revealed.status_code == (200 if role.reveals else 403)
    assert ("what are tides" in revealed.text) == role.reveals
    assert ("the sea" in revealed.text) == role.reveals
    if role.reveals:
        assert ("conversation.reveal", f"{talk}/2", "done", "a complaint") in await entries(database)


async def test_another_account_has_no_such_conversation(database: Database, sign_in: SignIn) -> None:
    talk = await talks.begin(database)
    other = await sign_in(Role.ADMIN, "globex")
    for path in ("", "/turns/1"):
        assert (await other.get(f"{URL}/{talk}{path}")).status_code == 404
    answer = await other.post(f"{URL}/{talk}/turns/1/reveal", data={"reason": "because"})
    assert answer.status_code == 404
    assert talk not in (await other.get(URL)).text
    assert (await (await sign_in(Role.ADMIN)).get(f"{URL}/{talk}/turns/9")).status_code == 404


async def test_a_window_that_is_soon_full_is_the_first_thing_that_is_said(database: Database, sign_in: SignIn) -> None:
    await talks.begin(database, turns=3, slope=1_000.0, name="steep")
    await talks.begin(database, turns=1, slope=None, model=None, name="new")
    page = await shown(await sign_in(Role.ADMIN), URL)
    assert "1 conversation will fill its window soon" in page
    assert "no answer yet" in page


async def test_the_list_and_the_turns_are_paged_by_their_address(database: Database, sign_in: SignIn) -> None:
    made = [await talks.begin(database, turns=1, slope=5.0 if n < 3 else None) for n in range(53)]
    long = await talks.begin(database, turns=53, slope=-4.0, account="globex")
    client, operator = await sign_in(Role.ADMIN), await sign_in(Role.OPERATOR)

    async def listed(query: str, client=client) -> list[str]:  # type: ignore[no-untyped-def]
        return re.findall(
            r'class="ttl" href="/console/conversations/(conv_\w+)"', (await client.get(f"{URL}?{query}")).text
        )

    first = await listed("")
    older = re.search(r'href="/console/conversations\?(after=[^"]+)"', (await client.get(URL)).text)
    assert older
    assert first + await listed(older[1]) == made[::-1]
    newer = re.search(r'href="/console/conversations\?(before=[^"]+)"', (await client.get(f"{URL}?{older[1]}")).text)
    assert newer
    assert await listed(newer[1]) == first
    assert sorted(await listed("view=growing")) == sorted(made[:3])
    assert await listed("view=busy") == []
    assert await listed(f"q={made[7]}") == [made[7]]
    assert await listed("q=account:globex", operator) == [long]
    assert (await client.get(f"{URL}?q=state:x")).status_code == 400
    page = (await operator.get(f"{URL}/{long}")).text
    numbers = re.findall(r"/turns/(\d+)", page)
    assert numbers == [str(n) for n in range(53, 3, -1)]
    assert re.findall(r"/turns/(\d+)", (await operator.get(f"{URL}/{long}?until=4")).text) == ["3", "2", "1"]
