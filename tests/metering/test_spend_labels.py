"""Claims about the labels by which spend is reported: where they come from, and which forms are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadInput
from app.metering.spend_labels import HEADERS, read


def test_without_a_label_the_workflow_is_the_default_one_and_the_work_is_critical() -> None:
    found = read({}, None, ())
    assert (found.workflow, found.task, found.critical, found.variant, found.family) == ("default", "-", True, "-", "-")


def test_a_header_wins_over_metadata_which_wins_over_the_gateways_metadata_and_a_tag() -> None:
    sources = [
        {"x-slackwater-workflow": "a"},
        {"workflow": "b"},
        '{"workflow": "c"}',
        ("workflow:d",),
    ]
    for first in range(4):
        headers = dict(sources[0]) if first == 0 else {}  # type: ignore[call-overload]
        if first <= 2:
            headers["cf-aig-metadata"] = sources[2]
        metadata = sources[1] if first <= 1 else None
        assert read(headers, metadata, sources[3]).workflow == "abcd"[first]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "A", "two words", "-x", "x" * 65, "ä"])
def test_a_header_that_is_not_in_form_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match="x-slackwater-task: must be 1 to 64"):
        read({"x-slackwater-task": text}, None, ())


def test_a_header_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(BadInput, match="x-slackwater-critical: must be true or false"):
        read({"x-slackwater-critical": "maybe"}, None, ())


@pytest.mark.parametrize(("given", "critical"), [("false", False), ("0", False), ("TRUE", True), ("yes", True)])
def test_a_caller_says_that_its_work_is_not_critical(given: str, critical: bool) -> None:
    assert read({HEADERS["critical"]: given}, None, ()).critical is critical
    assert read({}, {"critical": given}, ()).critical is critical


def test_metadata_that_callers_wrote_for_themselves_is_put_into_form_and_never_refused() -> None:
    found = read(
        {"cf-aig-metadata": "[1]"}, {"workflow": "Nightly Tagging!", "task": "¿", "critical": "high"}, ("x", "task:A b")
    )
    assert (found.workflow, found.task, found.critical) == ("nightly-tagging", "a-b", True)


@given(
    st.dictionaries(
        st.sampled_from(["workflow", "task", "critical", "variant", "prompt_family"]), st.text(max_size=200)
    )
)
def test_any_metadata_gives_labels_in_form(metadata: dict[str, str]) -> None:
    found = read({}, metadata, ())
    for label in (found.workflow, found.task, found.variant, found.family):
        assert label == "-" or read({"x-slackwater-task": label}, None, ()).task == label
    named = metadata.get("workflow", "")
    if named.isascii() and named.isalnum():
        assert found.workflow == named.lower()[:64]
