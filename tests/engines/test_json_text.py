"""Claims about setting members of a JSON object in its text."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines.catalogue import Price
from app.engines.json_text import JsonText
from app.engines.pricing import priced

ODD = r'[1.10,-0,1e2,12345678901234567890123,-0.1234567890123456789,"\u00e9é\"usage\":{}", { } ]'
PRICE = Price(input=1.0, cached_input=1.0, output=1.0)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('usage":{}[],\\é\u2028'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["usage", "a", 'b"usage']), inner),
)


@pytest.mark.parametrize(
    ("text", "path", "whole"),
    [
        ("{}", (), '{"x":1.5,"y":"ü"}'),
        (" { } ", (), ' { "x":1.5,"y":"ü"} '),
        (f'{{"o":{ODD}}}', (), f'{{"o":{ODD},"x":1.5,"y":"ü"}}'),
        (f'{{"x" : {ODD} , "o":{ODD}\n}}', (), f'{{"x" : 1.5 , "o":{ODD}\n,"y":"ü"}}'),
        ('{"x":1,"x": 2}', (), '{"x":1,"x": 1.5,"y":"ü"}'),
        (f'{{"a":{{"x":1}},"o":{ODD},"a":{{}}}}', ("a",), f'{{"a":{{"x":1}},"o":{ODD},"a":{{"x":1.5,"y":"ü"}}}}'),
        (f'{{"a":{{"b":{{"o":{ODD}}}}},"b":1}}', ("a", "b"), f'{{"a":{{"b":{{"o":{ODD},"x":1.5,"y":"ü"}}}},"b":1}}'),
    ],
)
def test_members_are_set_and_every_other_byte_stays(text: str, path: tuple[str, ...], whole: str) -> None:
    assert bytes(JsonText(text.encode()).set({"x": 1.5, "y": "ü"}, *path)) == whole.encode()


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":[{}]}', '{"b":{"a":{}}}', "{}"])
def test_nothing_is_set_in_what_is_no_object(text: str) -> None:
    with pytest.raises(LookupError):
        JsonText(text.encode()).set({"x": 1}, "a")


@given(st.dictionaries(st.sampled_from(["usage", "a", 'b"usage', "usage\\"]), values), st.booleans())
def test_a_member_is_found_wherever_its_name_is_too(whole: dict[str, Any], spaces: bool) -> None:
    text = orjson.dumps(whole, option=orjson.OPT_INDENT_2 if spaces else 0)
    found = JsonText(text).get("usage")
    assert (None if found is None else orjson.loads(found)) == whole.get("usage")
    assert orjson.loads(bytes(JsonText(text).set({"usage": 7, "new": [7]}))) == whole | {"usage": 7, "new": [7]}


def test_an_answer_with_its_cost_keeps_its_bytes_and_one_without_a_price_is_the_same_object() -> None:
    usage = f'"usage" : {{"prompt_tokens":1, "completion_tokens":2,"odd":{ODD}'
    answer = f'{{"odd":{ODD},{usage}}},"behind":{ODD}}}'.encode()
    cost = b',"cost":3e-6,"currency":"USD"}'
    assert priced(answer, PRICE) == f'{{"odd":{ODD},{usage}'.encode() + cost + f',"behind":{ODD}}}'.encode()
    assert priced(answer, None) is answer
    assert priced(priced(answer, PRICE), PRICE) == priced(answer, PRICE)
    for without in (b'{"usage": null, "a":1.10}', b'{"a":1.10}'):
        assert priced(without, PRICE) == without
