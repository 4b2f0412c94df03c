"""Claims about the pages of four moments, in each look: nothing fails, axe-core finds nothing, nothing lies on another
thing or is cut.

Each run makes the sheets of `scenes` anew, in the folder TESTS_PICTURES, or in one of its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.access.roles import Role
from app.cli.database import on_database
from app.db.pool import Connection, Database
from app.settings import Settings
from tests.console import axe, browser, scenes
from tests.console.browser import Reader
from tests.console.conftest import serving
from tests.console.scenes import KEPT, LOOKS, SCENES

pytestmark = pytest.mark.slow
_SETTLE_MS = 300


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Any]:
    """The console on the rows of a scene."""
    browser.require()

    async def fill(conn: Connection) -> None:
        async with Database.of(settings, "scene") as database:
            await SCENES[request.param](database)

    on_database(settings, fill)
    with serving(settings) as served:
        yield SimpleNamespace(name=request.param, settings=served)


def test_every_page_of_a_scene_is_whole_in_every_look(scene: Any, tmp_path: Path) -> None:
    found: list[str] = []
    folder = Path(os.environ.get("TESTS_PICTURES") or tmp_path)
    folder.mkdir(exist_ok=True)
    with browser.launched() as chromium:
        for look, options in LOOKS.items():
            reader = Reader(chromium, scene, bypass_csp=True, **options)
            reader.context.add_init_script(path=axe.AXE)
            reader.sign_in(Role.OPERATOR)
            taken = {}
            for name, address in scenes.addresses(reader).items():
                status = reader.open(address)
                reader.page.wait_for_timeout(_SETTLE_MS)
                found += [f"{look} {name}: {each}" for each in axe.violations(reader)]
                found += [f"{look} {name}: {status}"] if status != 200 else []
                found += [f"{look} {name}: {each}" for each in reader.faults()]
                taken[name] = reader.page.screenshot(type="jpeg", quality=80)
            found += [f"{look}: {each}" for each in reader.complaints]
            if look in KEPT:
                drawn = scenes.sheet(chromium, taken, options["viewport"]["width"])
                (folder / f"{scene.name}-{look}.jpg").write_bytes(drawn)
            reader.context.close()
    assert found == []


@pytest.mark.parametrize("scene", ["busy"], indirect=True)
def test_on_a_narrow_screen_an_item_has_all_its_values_and_no_tab_is_cut(scene: Any, tmp_path: Path) -> None:
    with browser.launched() as chromium:
        reader = Reader(chromium, scene, **LOOKS["narrow"])
        reader.sign_in(Role.OPERATOR)
        reader.open("/console/batches?view=all")
        links = reader.page.locator('main a[href^="/console/batches/"]:not([href$="/new"])')
        for address in [str(link.get_attribute("href")) for link in links.all()]:
            reader.open(f"{address}?items=answered")
            if reader.page.locator("#batch-items tbody tr").count():
                break
        seen = reader.page.evaluate(
            """() => {
              const names = [...document.querySelectorAll('#batch-items thead th')].map(each => each.textContent);
              const cells = [...document.querySelector('#batch-items tbody tr').cells];
              const tabs = [...document.querySelectorAll('#batch-items .tabs a')];
              return {hidden: names.filter((_, n) => !cells[n].getBoundingClientRect().width),
                cut: tabs.filter(each => each.getBoundingClientRect().right > innerWidth).map(each => each.textContent)};
            }"""
        )
        reader.page.locator("#batch-items").screenshot(path=tmp_path / "items.png")
    assert seen == {"hidden": ["Reference"], "cut": []}
