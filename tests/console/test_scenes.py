"""Claims about the pages of four moments: in each look nothing lies on another thing or is cut, and axe-core finds nothing
in light and in dark.

Each run makes the sheets of `scenes` anew, in the folder TESTS_PICTURES and README's pictures in docs, or all in one of its own.
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
from tests.console.scenes import LOOKS, SCENES
from tests.console.walk import Addresses, opened

pytestmark = pytest.mark.slow
_SETTLE_MS = 150
WIDE = LOOKS["light"]
AXE_LOOKS = ("light", "narrow-dark")  # test_accessibility has every page in all of them
DOCS = Path(__file__).parents[2] / "docs"
README = {"now": ("console-now.png", 1285), "batch": ("console-batch.png", 860)}  # with their heights


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Any]:
    """The console on the rows of a scene."""
    browser.require()
    ids: Addresses = {}

    async def fill(conn: Connection) -> None:
        async with Database.of(settings, "scene") as database:
            ids.update(await SCENES[request.param](settings, database))

    on_database(settings, fill)
    with scenes.parts_connected(settings) as beat, serving(settings) as served:
        alive = beat if request.param != "broken" else lambda: None
        yield SimpleNamespace(name=request.param, settings=served, ids=ids, alive=alive)


def test_every_page_of_a_scene_is_whole_in_every_look(scene: Any, tmp_path: Path) -> None:
    found: list[str] = []
    taken: dict[str, dict[str, bytes]] = {look: {} for look in LOOKS}
    shown: dict[str, bytes] = {}
    pages = scenes.looks(scene.name, scene.ids)
    with browser.launched() as chromium:
        for page, reader in opened(chromium, scene, scene.ids, pages=pages, script=axe.AXE, bypass_csp=True, **WIDE):
            scene.alive()
            for look, options in LOOKS.items():
                reader.page.set_viewport_size(options["viewport"])
                reader.page.emulate_media(color_scheme=options["color_scheme"])
                reader.page.wait_for_timeout(_SETTLE_MS)
                found += [f"{look} {page.name}: {each}" for each in reader.faults()]
                if look in AXE_LOOKS:
                    found += [f"{look} {page.name}: {each}" for each in axe.violations(reader)]
                asked = reader.page.locator("[popover]:popover-open").count()  # over the screen, and not over the page
                taken[look][page.name] = reader.page.screenshot(type="jpeg", quality=93, full_page=not asked)
                if look == "light" and page.name in README:
                    shown[page.name] = reader.page.screenshot(full_page=True)
            found += [f"{page.name}: {each}" for each in reader.complaints]
            reader.complaints.clear()
            reader.page.set_viewport_size(WIDE["viewport"])
    folder = Path(os.environ.get("TESTS_PICTURES") or tmp_path)
    folder.mkdir(exist_ok=True)
    for look, pictures in taken.items():
        (folder / f"{scene.name}-{look}.webp").write_bytes(scenes.sheet(pictures))
    if scene.name == "busy":
        docs = DOCS if "TESTS_PICTURES" in os.environ else tmp_path
        for page, (file, height) in README.items():
            (docs / file).write_bytes(scenes.top(shown[page], height))
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
