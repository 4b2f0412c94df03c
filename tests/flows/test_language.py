"""Claims about the language of templates and conditions: what it means, that nothing crashes it, and where its errors point."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.flows import conditions, language, templates
from app.flows.conditions import All, AnyOf, Compare, Condition, In, Not, OneOf
from app.flows.language import WORDS, LanguageError, Literal, Path
from app.flows.problems import ItemError, Reason
from app.flows.templates import Room, Slot, Template

ROOM = 10_000
SCOPE: dict[str, Any] = {
    "item": {
        "text": "Blue cheese",
        "n": 3,
        "tags": ["a", "b"],
        "rows": [{"name": "x"}, {}],
        "first name": "Ann",
        "no": None,
    },
    "json": {"topic": "food", "confidence": 0.6, "list": [], "yes": True, "nested": [[1], [2]]},
    "ok": True,
}


def render(text: str, scope: Any = SCOPE, room: int = ROOM) -> str:
    return templates.render(templates.parse(text), scope, Room(room))


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
roots = names.filter(lambda name: name not in WORDS)
keys = st.lists(names | st.text(max_size=8) | st.integers(0, 999_999_999), max_size=4)
any_path = st.builds(lambda root, keys: Path(root, tuple(keys)), roots, keys)
scalars = st.none() | st.booleans() | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False)
literals = st.builds(Literal, scalars | st.integers(-(10**30), 10**30))
values = literals | any_path
one_ofs = st.builds(lambda each: OneOf(tuple(each)), st.lists(literals, min_size=1, max_size=3))
tests = (
    values
    | st.builds(Compare, values, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), values)
    | st.builds(In, values, values | one_ofs)
)


def joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, inner) | st.builds(All, several) | st.builds(AnyOf, several)


any_condition = st.recursive(tests, joined, max_leaves=8)
slots = st.builds(Slot, any_path, st.none() | st.integers(1, 999_999_999), st.none() | st.text(max_size=8))
texts = st.text(st.sampled_from('a{}"|\\ é\n'), min_size=1, max_size=6)


@st.composite
def any_template(draw: st.DrawFn) -> Template:
    pieces = list[str | Slot]()
    for each in draw(st.lists(slots | texts, max_size=5)):
        if not (isinstance(each, str) and pieces and isinstance(pieces[-1], str)):
            pieces.append(each)
    return Template(tuple(pieces))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
pieces = [*"{}[]()|.\"'\\<>=! -0a9e", "and ", "not ", " in ", "{{", "}}"]
near_misses = st.lists(st.sampled_from(pieces), max_size=40).map("".join)


@given(st.text(max_size=60) | near_misses)
def test_no_text_crashes_a_reader_and_every_error_points_into_the_text(text: str) -> None:
    for parse in (templates.parse, conditions.parse, language.parse_path):
        column = 1
        try:
            parse(text)
        except LanguageError as error:
            column = error.column
        assert 1 <= column <= len(text) + 1


@given(any_template())
def test_a_template_is_printed_as_it_is_read(template: Template) -> None:
    assert templates.parse(str(template)) == template


@given(any_condition)
def test_a_condition_is_printed_as_it_is_read(condition: Condition) -> None:
    if len(str(condition)) <= conditions.LONGEST:
        again = conditions.parse(str(condition))
        assert again == condition
        assert str(again) == str(condition)  # true and 1 are equal in Python, but not the same


@given(any_template(), st.dictionaries(names, json_values, max_size=4))
def test_rendering_gives_a_text_or_the_error_of_the_item(template: Template, scope: dict[str, Any]) -> None:
    found: object
    try:
        found = templates.render(template, scope, Room(ROOM))
    except ItemError as error:
        found = error.reason.value
    assert isinstance(found, str)


@given(any_condition, st.dictionaries(names, json_values, max_size=4))
def test_a_condition_holds_or_not_whatever_it_reads(condition: Condition, scope: dict[str, Any]) -> None:
    assert conditions.holds(condition, scope) in (True, False)
    assert conditions.holds(Not(condition), scope) is not conditions.holds(condition, scope)


@given(st.text() | st.just("{{item.text}}") | near_misses, near_misses)
def test_inserted_text_is_never_read_as_a_template(inserted: str, other: str) -> None:
    scope = {"x": inserted, "y": other, "item": {"text": "SECRET"}}
    assert render("{{x}}", scope) == inserted
    assert render("<{{x}}{{y}}>", scope) == f"<{inserted}{other}>"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Topic?\n{{item.text}}.", "Topic?\nBlue cheese."),
        ("{{ item.text | 4 }}", "Blue […cut: 4 of 11 characters]"),
        ("{{item.text|11}}", "Blue cheese"),
        ('{{item.gone|"none"}} {{item.no|"null"}}', "none null"),
        ('{{item.gone|5|"a default is not cut"}}', "a default is not cut"),
        ('{{item["first name"]}}', "Ann"),
        ("{{item.tags}} {{item.tags[1]}} {{item.n}} {{json.yes}}", '["a","b"] b 3 true'),
        ('{{item.rows.name|"-"}}', "x\n\n-"),
        ("{{json.nested}} {{json.nested[1][0]}}", "[[1],[2]] 2"),
        ('{{"{{"}}item.text}} {{"\\""}}', '{{item.text}} "'),
        ("no placeholder } }} { {", "no placeholder } }} { {"),
    ],
)
def test_a_placeholder_inserts_its_value(template: str, text: str) -> None:
    assert render(template) == text


@pytest.mark.parametrize(
    "template", ["{{item.gone}}", "{{item.no}}", "{{item.rows.name}}", "{{json.topic.x}}", "{{gone[0]}}"]
)
def test_a_value_that_is_missing_or_null_is_an_error_without_a_default(template: str) -> None:
    with pytest.raises(ItemError, match="missing or null; give it a default") as raised:
        render(template)
    assert raised.value.reason is Reason.MISSING_VALUE


def test_inserting_stops_at_the_end_of_the_room() -> None:
    assert render("{{item.text}}", room=11) == "Blue cheese"
    with pytest.raises(ItemError) as raised:
        render("{{item.text}}" * 3, room=32)
    assert raised.value.reason is Reason.TOO_LONG


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("ok", True),
        ("not ok or json.confidence < 0.7", True),
        ("ok and json.confidence >= 0.7", False),
        ("ok and not (json.topic == 'food' or json.yes)", False),
        ('json.topic in ["food", "drink"]', True),
        ('json.topic not in ["food", "drink"]', False),
        ('"cheese" in item.text', True),
        ('"b" in item.tags', True),
        ('"topic" in json', True),
        ('"x" in item.rows.name', True),
        ("null in item.rows.name", True),
        ("json.list", False),
        ("item.tags", True),
        ("json.gone", False),
        ("json.gone == null", True),
        ("item.no == null", True),
        ("json.gone < 1 or json.gone > 1", False),
        ("json.gone != 1", True),
        ("json.yes == 1", False),
        ("item.n == 3.0", True),
        ('item.n == "3"', False),
        ('"10" < "9"', True),
        ('item.n < "9"', False),
        ("item.tags == item.tags", False),
        ("1 in item.text", False),
        ("not not true", True),
    ],
)
def test_a_condition_means_what_it_says(text: str, held: bool) -> None:
    assert conditions.holds(conditions.parse(text), SCOPE) is held


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("json.a = 1", 8, "write == to compare"),
        ("ok && true", 4, "write and"),
        ("!ok", 1, "write not"),
        ("len(json.a) > 1", 4, "no calls"),
        ("1 < json.a < 2", 12, "join comparisons with and"),
        ("ok ok", 4, "join conditions with and or or"),
        ("(ok", 4, "close the parenthesis"),
        ("json.topic in [food]", 16, "write a literal"),
        ("json.a not 1", 12, "write not in"),
        ("json. == 1", 7, "a dot is followed by a name"),
        ("json[-1]", 6, "brackets have a place"),
        ('"abc', 1, "not closed"),
        (r'"\x" in text', 2, "means nothing"),
        ("1e999 < 2", 1, "too large"),
        ("", 1, "the text ends here; write a path"),
        ("ok and", 7, "the text ends here"),
        ("x" * 1001, 1001, "at most 1,000 characters"),
        ("(" * 32 + "ok" + ")" * 32, 33, "deeper than 32"),
        ("not " * 32 + "ok", 129, "deeper than 32"),
    ],
)
def test_an_error_in_a_condition_names_the_column_and_the_mend(text: str, column: int, words: str) -> None:
    with pytest.raises(LanguageError) as raised:
        conditions.parse(text)
    assert raised.value.column == column
    assert words in raised.value.message


def test_a_condition_may_be_31_levels_deep() -> None:
    assert conditions.holds(conditions.parse("(" * 31 + "ok" + ")" * 31), SCOPE)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("Topic: {{item.text", 8, "not closed; end the placeholder with }}"),
        ("Topic: {{item text}}", 15, "end the placeholder with }}"),
        ('{{item.text "none"}}', 13, "end the placeholder with }}"),
        ("{{}}", 3, "write a path"),
        ("{{#each item}}", 3, "no meaning"),
        ("{{item.text|upper}}", 13, "a number of characters"),
        ("{{item.text|0}}", 13, "whole number of characters from 1"),
        ("{{item.text|1.5}}", 13, "whole number of characters from 1"),
        ('{{item.text|"a"|5}}', 16, "end the placeholder"),
        ("{{true}}", 3, "write a path"),
        ("{{f(x)}}", 4, "no calls"),
        ("a } {{item.a}} {{item.b}", 24, "ends with }}"),
    ],
)
def test_an_error_in_a_template_names_the_column_and_the_mend(text: str, column: int, words: str) -> None:
    with pytest.raises(LanguageError) as raised:
        templates.parse(text)
    assert raised.value.column == column
    assert words in raised.value.message


LONG = ('{{"' + "\\" * 100_000, "{{a" * 100_000, "{" * 200_001, "{{a|" + "9" * 100_000, '{{"' + "a" * 200_000)


@pytest.mark.parametrize("text", LONG)
def test_a_long_text_that_is_no_template_is_refused_at_its_first_error(text: str) -> None:
    with pytest.raises(LanguageError):
        templates.parse(text)
