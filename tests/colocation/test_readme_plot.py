"""Claims about the README's picture and what it says of it: both are the table of docs/benchmarks.md."""

from benchmarks.colocation import readme_plot

PAGE = (readme_plot.DOCS / "benchmarks.md").read_text()
README = (readme_plot.DOCS.parent / "README.md").read_text()


def test_the_picture_has_every_way_to_share_with_what_it_costs_and_yields() -> None:
    found = {label.text: (tokens, slower) for label, tokens, slower in readme_plot.points(PAGE)}
    assert len(found) == len(readme_plot.LABELS)
    assert found["vLLM, by priority"] == (316, 20.1)


def test_the_readme_says_the_figures_of_the_table() -> None:
    inside, outside = (point.slower for point in readme_plot.points(PAGE) if point.label.ours)
    assert f"was {inside} times" in README
    assert f"and {outside} times from outside" in README
