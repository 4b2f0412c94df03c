"""Claims about the list of engines: what its two forms mean, which names are given, and what is refused."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.engines import discovery
from app.engines.engine_list import EngineListError, KnownEngine, ListedEngine, dns_query, name_prefix, named, of_file
from app.settings import Settings

TWO = """
[[engine]]
name = "a100-0"
url = "http://10.0.0.1:8000/v1"
[[engine]]
name = "h100-0"
url = "http://10.0.0.2:8000/"
model = "llama-8b"
slots = 512
kind = "sglang"
page_dir = "/dev/shm/h100-0"
"""


def row(number: int, url: str, *, held: bool = False, drained: bool = False) -> KnownEngine:
    return KnownEngine(f"vllm-{number}", url, held, drained)


def test_a_file_names_engines_and_what_it_leaves_out_the_settings_say() -> None:
    first, second = of_file(TWO, "engines.toml")
    shared = Settings(engines="file:engines.toml", engine_model="mistral", engine_slots=64)
    own = first.settings(shared)
    assert (own.engine_name, own.engine_url, own.engine_model, own.engine_slots, own.engines) == (
        "a100-0", "http://10.0.0.1:8000", "mistral", 64, "",
    )  # fmt: skip
    own = second.settings(shared)
    assert (own.engine_url, own.wanted_model, own.engine_slots, own.engine_dialect, own.page_dir) == (
        "http://10.0.0.2:8000", "llama-8b", 512, "sglang", "/dev/shm/h100-0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no engine"),
        ("[[engine]", "line 1"),
        ('[[engine]]\nname = "a"', "engine.1.url: is missing"),
        (
            '[[engine]]\nname = "a"\nurl = "10.0.0.1:8000"',
            "engine.1.url: must be http://HOST:PORT or https://HOST:PORT",
        ),
        ('[[engine]]\nname = "a b"\nurl = "http://x"', "engine.1.name: must be a letter or digit, then"),
        (
            '[[engine]]\nname = "a"\nurl = "http://x"\nslot = 4',
            "engine.1.slot: is not a known name; did you mean slots?",
        ),
        ('[[engines]]\nname = "a"', "engines: is not a known name; did you mean engine?"),
        ("engine = [1]", "engine.1: must be a table, not 1"),
        ('[[engine]]\nname = "a"\nurl = "http://x"\nkind = "tgi"', "engine.1.kind: must be 'auto', 'vllm'"),
        ('[[engine]]\nname = "a"\nurl = "http://x"\nslots = 0', "engine.1.slots: must be between 1 and 32767, not 0"),
        ('[[engine]]\nname = "a"\nurl = "http://x"\n[[engine]]\nname = "a"\nurl = "http://y"', "the name a"),
        ('[[engine]]\nname = "a"\nurl = "http://x"\n[[engine]]\nname = "b"\nurl = "http://x/v1"', "the url http://x"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place_and_a_remedy(text: str, said: str) -> None:
    with pytest.raises(EngineListError, match=r"engines\.toml") as refused:
        of_file(text, "engines.toml")
    assert said in str(refused.value)
    assert refused.value.remedy


def test_ports_are_ranges_and_lists() -> None:
    assert dns_query("dns://vllm.ns.svc:8000-8002,8100,8001") == ("vllm.ns.svc", [8000, 8001, 8002, 8100])
    assert dns_query("dns://[fd00::1]:80") == ("fd00::1", [80])
    for wrong in ("dns://x:", "dns://x:0", "dns://x:9-8", "dns://x:65536", "dns://x:8000-", "dns://:80"):
        with pytest.raises(EngineListError):
            dns_query(wrong)


async def test_each_address_is_an_engine_at_each_port_and_nothing_found_is_an_error_with_its_remedy() -> None:
    async def found(host: str) -> list[str]:
        return {"vllm": ["10.0.0.1", "10.0.0.2"], "none": []}[host]

    async def unknown(host: str) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    urls = [engine.url for engine in await discovery.find("dns://vllm:8000-8001", found)]
    assert urls == [f"http://10.0.0.{host}:{port}" for port in (8000, 8001) for host in (1, 2)]
    for spec, resolve, said in (("dns://none:80", found, "no address"), ("dns://vllm:80", unknown, "not known")):
        with pytest.raises(EngineListError, match=said) as refused:
            await discovery.find(spec, resolve)
        assert "getent hosts" in refused.value.remedy
    assert [engine.url for engine in await discovery.find("dns://localhost:81")] == ["http://127.0.0.1:81"]


async def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(EngineListError, match=r"none\.toml cannot be read"):
        await discovery.find(f"file:{tmp_path}/none.toml")
    (tmp_path / "two.toml").write_text(TWO)
    assert [engine.name for engine in await discovery.find(f"file:{tmp_path}/two.toml")] == ["a100-0", "h100-0"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"engines": "engines.toml"},
        {"engines": "dns://vllm"},
        {"engines": "file:a.toml", "engine_url": "http://x"},
        {"engines": "file:a.toml", "page_dir": "/dev/shm/pages"},
        {"engines": "file:a.toml", "engines_max": 0},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_a_host_gives_its_engines_their_names() -> None:
    assert name_prefix("decode.ns.svc.cluster.local") == "decode-"
    assert (name_prefix("localhost"), name_prefix("10.0.0.1"), name_prefix("fd00::1")) == (
        "localhost-", "10.0.0.1-", "fd00--1-",
    )  # fmt: skip


def test_an_address_keeps_its_name_and_a_new_one_takes_that_of_an_engine_that_is_gone() -> None:
    known = [row(0, "http://a"), row(1, "http://gone"), row(2, "http://c", held=True)]
    assert named(["http://new", "http://c", "http://a"], known, "vllm-") == {
        "http://new": "vllm-1",
        "http://c": "vllm-2",
        "http://a": "vllm-0",
    }


def test_a_name_that_is_in_use_is_given_to_no_other_address() -> None:
    known = [
        row(0, "http://x", held=True),
        row(1, "http://y", drained=True),
        KnownEngine("vllm-2x", "http://z", True, False),
    ]
    assert named(["http://a", "http://b"], known, "vllm-", {"http://old": "vllm-2"}) == {
        "http://a": "vllm-3",
        "http://b": "vllm-4",
    }


def test_of_two_rows_with_an_address_the_one_that_a_worker_holds_counts() -> None:
    known = [row(0, "http://a"), row(3, "http://a", held=True)]
    assert named(["http://a"], known, "vllm-") == {"http://a": "vllm-3"}


ADDRESSES = [f"http://{letter}" for letter in "abcdefgh"]
URLS = st.lists(st.sampled_from(ADDRESSES[:6]), unique=True)
ROW = st.builds(row, st.integers(0, 8), st.sampled_from(ADDRESSES), held=st.booleans(), drained=st.booleans())
ROWS = st.lists(ROW, unique_by=lambda known: known.name)


@given(URLS, ROWS)
def test_names_are_distinct_and_a_held_row_of_another_address_keeps_its_own(
    urls: list[str], known: list[KnownEngine]
) -> None:
    names = named(urls, known, "vllm-")
    assert list(names) == urls
    assert len(set(names.values())) == len(urls)
    for engine in known:
        holder = {name: url for url, name in names.items()}.get(engine.name)
        assert holder in (None, engine.url) or not (engine.held or engine.drained)
    assert named(urls, known, "vllm-") == names
    stored = [KnownEngine(name, url, False, False) for url, name in names.items()]
    assert named(list(reversed(urls)), stored, "vllm-") == names


def test_what_a_listed_engine_does_not_say_leaves_the_settings_as_they_are() -> None:
    own = ListedEngine("http://x", "x-0").settings(Settings(engines="dns://x:80"))
    assert own.wanted_model is None
    assert "engine_slots" not in own.model_fields_set
