"""Claims about the definition of a pipeline: what it may say, and that every error names its place and its mend."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import optional_packages
from app.errors import BadInput
from app.flows.counting import check_numbers
from app.flows.definition import parse, parse_then
from app.flows.stages import Again, BySize, ByValue, Each, External, OfStage, Pick, Request
from tests.flows.pipelines import FORMAT, Json, chat, flow, pipeline, stage

FIRST = stage("extract", "{{item.text}}", body=chat("{{item.text|8000}}", response_format=FORMAT))
LISTS = stage("list", each="json.sections", max=5)
EXTERNAL: Json = {"id": "run", "external": {"timeout": "2h"}, "body": {"code": "{{text}}"}}


def refused(definition: Any) -> BadInput:
    with pytest.raises(BadInput) as raised:
        parse(definition)
    return raised.value


def test_the_whole_of_a_definition_is_read() -> None:
    found = parse(
        pipeline(
            FIRST | {"reask": 2, "escalate": {"model": "large", "when": "json.sure < 0.7", "most": 0.2}},
            stage("topic", "{{parts.text}}", pack={"by": "json.topic", "max": 50, "min": 2}),
            name="claims",
            completion_window="24h",
            budget={"usd": 20},
            limit=5,
        )
    )
    assert (found.name, found.window, found.usd, found.limit) == ("claims", 86_400, 20, 5)
    assert found.input.file_id == "file-1"
    names = [each.name for each in found.stages]
    assert names == ["extract", "extract.reask", "extract.reask2", "extract.escalate", "topic"]
    assert [each.parent for each in found.stages] == [0, 1, 2, 3, 4]
    assert [each.otherwise for each in found.stages] == ["drop", "pass", "pass", "pass", "drop"]
    works = [each.work for each in found.stages[1:4]]
    assert [(work.of, work.with_answer) for work in works if isinstance(work, Again)] == [
        (1, True),
        (2, True),
        (1, False),
    ]
    assert found.stages[3].share == 0.2
    assert isinstance(found.stages[4].pack, ByValue)


def test_each_kind_of_stage_is_read() -> None:
    found = flow(
        FIRST,
        LISTS,
        stage("whole", "{{parts.text}}{{extract.text}}{{item.id}}", pack={"of": "extract"}),
        stage("ten", pack={"size": 10}),
        EXTERNAL | {"after": "extract"},
        stage("best", body=chat("Q", n=8), after="input", depends_on=["whole", "ten"]),
        stage("judge", "{{choices}}"),
        {"id": "chosen", "pick": {"from": "best", "index": "json.best"}},
    )
    parts, whole, ten, run, best, judge, chosen = found.stages[1:]
    assert isinstance(parts.each, Each)
    assert parts.each.most == 5
    assert whole.pack == OfStage(1, 1000)
    assert ten.pack == BySize(10)
    assert isinstance(run.work, External)
    assert (run.parent, run.work.timeout) == (1, 7200)
    assert (best.parent, best.depends_on) == (0, (3, 4))
    assert isinstance(judge.work, Request)
    assert isinstance(chosen.work, Pick)
    assert chosen.work.of == best.number


def test_a_later_stage_reads_the_answer_after_re_asks_and_escalation() -> None:
    found = flow(FIRST | {"reask": 1, "escalate": {"model": "large"}}, stage("a"), stage("b", "{{extract.text}}"))
    assert found.stages[-1].single.names == {"extract": 3, "a": 4}


def test_an_input_with_answers_can_be_read_and_passed_on() -> None:
    found = parse(
        pipeline(stage("a", "{{text}} {{item.x}} {{input.text}}", otherwise="pass")) | {"input": {"batch": "b1"}}
    )
    assert found.stages[0].otherwise == "pass"
    assert str(found.stages[0].when) == "ok"


BAD_STAGES: list[tuple[list[Json], str, str]] = [
    ([FIRST | {"id": "Big"}], "stages[0].id", "1 to 32 of a-z"),
    ([FIRST | {"id": "json"}], "stages[0].id", "has a meaning in templates"),
    ([FIRST, FIRST], "stages[1].id", "used by an earlier stage"),
    ([FIRST | {"modell": "x"}], "stages[0].modell", "did you mean model?"),
    ([FIRST | {"model": ""}], "stages[0].model", "must be a string"),
    ([FIRST | {"endpoint": "/v1/x"}], "stages[0].endpoint", "must be one of"),
    ([FIRST | {"after": "later"}], "stages[0].after", "must name an earlier stage"),
    ([FIRST | {"body": []}], "stages[0].body", "must be an object"),
    ([FIRST | {"body": {"model": "x"}}], "stages[0].body.model", "stands beside body"),
    ([FIRST | {"body": chat("{{item.a}")}], "stages[0].body.messages[0].content", "at column 9: "),
    ([FIRST | {"body": chat("{{text}}")}], "stages[0].body.messages[0].content", "column 3: the input has no answers"),
    ([FIRST | {"body": {"{{x}}": 1}}], "stages[0].body", "they stand in values"),
    (
        [FIRST | {"body": chat("", response_format={"type": "{{item.t}}"})}],
        "stages[0].body.response_format",
        "one for all",
    ),
    ([FIRST | {"when": "item.a = 1"}], "stages[0].when", "at column 8: '=' has no meaning here; write =="),
    ([FIRST | {"when": "ok"}], "stages[0].when", "the input has no answers"),
    ([FIRST | {"when": 1}], "stages[0].when", "must be a condition"),
    ([FIRST | {"otherwise": "pass"}], "stages[0].otherwise", "no answers that could be passed on"),
    ([FIRST, stage("b", "{{extrakt.text}}")], "stages[1].body.messages[0].content", "did you mean extract?"),
    ([FIRST, stage("b", "{{extract}}")], "stages[1].body.messages[0].content", "like extract.text"),
    ([FIRST, stage("b", "{{extract.txt}}")], "stages[1].body.messages[0].content", "choose from text, json"),
    ([FIRST, stage("b", "{{each}}")], "stages[1].body.messages[0].content", "only in the body of a stage with each"),
    (
        [FIRST, stage("b", "{{parts.text}}")],
        "stages[1].body.messages[0].content",
        "only in the body of a stage with pack",
    ),
    ([FIRST, stage("b", otherwise="keep")], "stages[1].otherwise", "must be one of drop, pass"),
    ([FIRST, LISTS | {"each": "json.a b"}], "stages[1].each", "at column 8"),
    ([FIRST, LISTS | {"max": 1001}], "stages[1].max", "from 1 to 1,000"),
    ([FIRST, stage("b", max=5)], "stages[1].max", "needs each"),
    ([FIRST, LISTS | {"pack": {"size": 2}}], "stages[1].pack", "cannot stand beside each"),
    ([FIRST, stage("b", pack={})], "stages[1].pack", "must have one of size, of and by"),
    ([FIRST, stage("b", pack={"size": 2, "max": 3})], "stages[1].pack.max", "cannot stand beside size"),
    ([FIRST, stage("b", pack={"size": 2, "min": 3})], "stages[1].pack.min", "from 1 to 2"),
    ([FIRST, LISTS, stage("b", pack={"size": 2})], "stages[2].pack.size", "behind a fan-out"),
    ([FIRST, LISTS, stage("c"), stage("b", pack={"size": 2})], "stages[3].pack.size", "behind a fan-out"),
    ([FIRST, stage("b", pack={"of": "extract"})], "stages[1].pack.of", "names the parent"),
    ([FIRST, stage("b", pack={"by": "gone.x"})], "stages[1].pack.by", "neither a root nor a stage"),
    ([FIRST, stage("b", "{{text}}", pack={"size": 2})], "stages[1].body.messages[0].content", "write parts.text"),
    ([FIRST, stage("b", "{{parts}}", pack={"size": 2})], "stages[1].body.messages[0].content", "say what of them"),
    ([FIRST, stage("b", "{{parts.x}}", pack={"size": 2})], "stages[1].body.messages[0].content", "of the parts, 'x'"),
    ([FIRST, stage("b", pack={"size": 2}, otherwise="pass")], "stages[1].otherwise", "must be drop in a pack"),
    (
        [FIRST, stage("b", pack={"size": 2}), stage("c", "{{item.x}}")],
        "stages[2].body.messages[0].content",
        "behind a pack",
    ),
    (
        [FIRST, stage("b", pack={"size": 2}), stage("c", pack={"of": "extract"})],
        "stages[2].pack.of",
        "nothing above it",
    ),
    (
        [FIRST, {"id": "b", "pick": {"from": "x", "index": "json.a"}}],
        "stages[1].pick.from",
        "must name an earlier stage",
    ),
    ([FIRST, {"id": "b", "pick": {"from": "extract"}}], "stages[1].pick.index", "must be a string"),
    ([FIRST, stage("b", pick={"from": "extract", "index": "k"})], "stages[1].model", "cannot stand beside pick"),
    ([FIRST, EXTERNAL | {"model": "x"}], "stages[1].model", "cannot stand beside external"),
    ([FIRST, EXTERNAL | {"external": {"timeout": "8d"}}], "stages[1].external.timeout", "at most 7d"),
    ([FIRST, stage("b", depends_on=["later"])], "stages[1].depends_on", "must name an earlier stage"),
    ([FIRST | {"reask": 4}], "stages[0].reask", "from 1 to 3"),
    ([stage("b", reask=1)], "stages[0].reask", "set response_format"),
    ([stage("b", reask=1, body={"prompt": "x"})], "stages[0].reask", "needs a conversation"),
    ([FIRST | {"escalate": {"when": "not valid"}}], "stages[0].escalate.model", "must be a string"),
    ([FIRST | {"escalate": {"model": "l", "most": 1.5}}], "stages[0].escalate.most", "at most 1"),
    ([FIRST | {"escalate": {"model": "l", "when": "k"}}], "stages[0].escalate.when", "column 1"),
    ([stage(f"s{n}") for n in range(17)], "stages", "has 17 stages"),
    ([FIRST | {"reask": 3}] * 1 + [stage(f"s{n}") for n in range(13)], "stages", "re-asks and escalations included"),
    ([], "stages", "must be a list of stages"),
]


@pytest.mark.parametrize(("stages", "param", "words"), BAD_STAGES)
def test_an_error_of_a_stage_names_its_place_and_its_mend(stages: list[Json], param: str, words: str) -> None:
    error = refused(pipeline(*stages))
    assert error.param == param
    assert words in error.message
    assert error.message.startswith(param)


def test_an_error_names_the_stage_by_its_id() -> None:
    assert "of stage 'extract'" in refused(pipeline(FIRST | {"when": "("})).message


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ([], "pipeline", "must be an object"),
        ({"stages": [FIRST]}, "input", "is missing"),
        (pipeline(FIRST, input={"items": [{}]}), "input.items", "a list of objects"),
        (pipeline(FIRST, input={"file_id": "a", "batch": "b"}), "input", "one of file_id, items, batch"),
        (pipeline(FIRST, completion_window="1w"), "completion_window", "length of time"),
        (pipeline(FIRST, budget={"eur": 1}), "budget.eur", "choose from usd"),
        (pipeline(FIRST, budget={"usd": 0}), "budget.usd", "above 0"),
        (pipeline(FIRST, limit=0), "limit", "from 1"),
        (pipeline(FIRST, webhook="x"), "webhook", "is unknown"),
        (pipeline(FIRST, name="x" * 257 * 1024), "pipeline", "the most is 256 KiB"),
        (pipeline(FIRST | {"body": {"a": [[[[[[[[1]]]]]]]]}}, stages=3), "stages", "must be a list"),
    ],
)
def test_an_error_of_the_pipeline_names_its_place(given: Any, param: str, words: str) -> None:
    error = refused(given)
    assert (error.param, error.status) == (param, 400)
    assert words in error.message


def test_nesting_without_end_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    assert "deeper than 64" in refused(pipeline(stage("a", body={"x": deep}))).message
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply" in refused(pipeline(stage("a", body={"x": deep}))).message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "nope"}, "at type"),
        ({"pattern": "(?=a)"}, "regex"),
        ({"$ref": "https://elsewhere.example/schema"}, "write references like #/$defs/name"),
        ({"$ref": "#/$defs/gone"}, "there is nothing at"),
        ({"properties": {"inner": {"$ref": "#"}}}, "refers to itself"),
        (
            {
                "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}},
                "$ref": "#/$defs/d0",
            },
            "more than 2,000 objects",
        ),
    ],
)
def test_a_schema_that_cannot_be_checked_safely_is_refused(schema: Json, words: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    error = refused(pipeline(stage("a", body=chat("x", response_format=form))))
    assert error.param == "stages[0].body.response_format"
    assert words in error.message


def test_without_the_validator_a_schema_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_packages, "find_spec", lambda _: None)
    assert "pip install 'slackwater[schemas]'" in refused(pipeline(FIRST)).message
    parse(pipeline(stage("a")))


def test_numbers_stay_below_2_to_the_31() -> None:
    found = flow(FIRST, LISTS | {"max": 1000}, stage("more", each="json.x", max=1000))
    check_numbers(found, 2147)
    with pytest.raises(BadInput, match="Set a smaller max") as raised:
        check_numbers(found, 2148)
    assert raised.value.param == "stages[2].max"


def test_stages_behind_a_batch_form_a_chain_that_passes_everything_on() -> None:
    found = parse_then([stage("fix", "{{text}} {{item.custom_id}}", when="not ok"), stage("judge", "{{input.text}}")])
    assert [(each.parent, each.otherwise) for each in found.stages] == [(0, "pass"), (1, "pass")]
    assert found.input.answers


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"after": "input"}, "then[0].after"),
        ({"each": "json.a"}, "then[0].each"),
        ({"pack": {"size": 2}}, "then[0].pack"),
        ({"otherwise": "drop"}, "then[0].otherwise"),
    ],
)
def test_stages_behind_a_batch_lose_no_line(more: Json, param: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_then([stage("a") | more])
    assert raised.value.param == param


words = st.sampled_from(
    ["id", "after", "model", "body", "when", "each", "max", "pack", "pick", "reask", "stages", "input"]
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a", "input", "{{a}}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(anything, st.dictionaries(words, anything, max_size=3))
def test_no_definition_crashes_the_reader(whole: Any, more: Json) -> None:
    for each in (whole, pipeline(FIRST, stage("b") | more), pipeline(FIRST | more)):
        param: str | None = "none"
        try:
            parse(each)
        except BadInput as error:
            param = error.param
        assert param
