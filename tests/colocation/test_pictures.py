"""Claims about the pictures of sharing an engine and what is said of them: all is from the tables of the documentation."""

import pytest

from benchmarks.colocation import pictures
from tests import needs

PAGE = (pictures.DOCS / "benchmarks.md").read_text()
README = (pictures.DOCS.parent / "README.md").read_text()


def bursts() -> dict[str, pictures.Point]:
    table = pictures.rows(PAGE, "**on/off arrivals**")
    return {each.words: each for each in pictures.points(table, table, ("TTFT p99", "batch tokens/s"))}


def test_the_picture_has_every_way_to_share_with_what_it_costs_and_yields() -> None:
    found = bursts()
    assert len(found) == 8
    assert found["vLLM, by priority"][1:] == (316, 20.1)


def test_the_readme_says_the_figures_of_the_table() -> None:
    outside, inside = (point.slower for point in bursts().values() if point.ours)
    assert f"was {inside} times" in README
    assert f"and {outside} times from outside" in README


@pytest.mark.parametrize("name", pictures.drawings())
def test_no_words_of_a_picture_lie_on_others_or_are_cut(name: str, tmp_path, monkeypatch) -> None:
    pyplot = needs.module("matplotlib.pyplot", "dev")
    monkeypatch.setattr(pyplot, "close", lambda figure: None)
    pictures.drawings()[name](tmp_path / name)
    figure = pyplot.gcf()
    figure.canvas.draw()
    said = [each for each in figure.axes[0].texts if each.get_text()]
    boxes = [(each.get_text(), each.get_window_extent()) for each in said]
    assert len({words for words, _ in boxes}) == len(boxes) > 3
    assert [
        words for words, box in boxes if not figure.bbox.contains(*box.min) or not figure.bbox.contains(*box.max)
    ] == []
    assert [(a, b) for n, (a, one) in enumerate(boxes) for b, other in boxes[n + 1 :] if one.overlaps(other)] == []
