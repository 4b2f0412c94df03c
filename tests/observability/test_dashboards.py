"""Claims about the dashboards: they are what the script writes, their queries parse, and read only metrics that exist."""

from pathlib import Path

import yaml

from tests.observability.support import Installed, dashboards, panel_expressions, rules, run, script, series

BOARDS = dashboards()


def test_the_dashboards_are_those_that_the_script_writes() -> None:
    written = script("dashboards")
    found = {file.name: file.read_text() for file in written.FOLDER.glob("*.json")}
    assert found == written.texts(), "run: python deploy/observability/dashboards.py"


def test_every_query_of_every_panel_parses(promtool: str, tmp_path: Path) -> None:
    queries = [expr for board in BOARDS.values() for expr in panel_expressions(board)]
    assert len(queries) > 60
    recorded = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    run(promtool, "check", "rules", file)


def test_no_panel_lies_on_another() -> None:
    for name, board in BOARDS.items():
        places = [panel["gridPos"] for panel in board["panels"]]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(cells) == len(set(cells)), name
        assert max(x for x, _ in cells) < 24, name
        assert len({panel["id"] for panel in board["panels"]}) == len(places), name


def test_every_link_leads_to_a_dashboard_and_the_first_one_answers_the_four_questions() -> None:
    known = {f"/d/{board['uid']}" for board in BOARDS.values()}
    links = {link["url"] for board in BOARDS.values() for panel in board["panels"] for link in panel["links"]}
    assert links
    assert links <= known
    titles = " ".join(panel["title"] for panel in BOARDS["now.json"]["panels"])
    for question in ("Protected?", "Why does work wait?", "What broke?", "What changed?"):
        assert question in titles


def test_every_metric_of_every_rule_and_panel_is_served_by_a_live_part(served: Installed) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    expressions = [rule["expr"] for rule in rules()]
    expressions += [expr for board in BOARDS.values() for expr in panel_expressions(board)]
    read = {name for expr in expressions for name in series(expr)}
    assert len(read) > 60
    assert read - served.names - recorded == set()
