"""Claims about the catalogue: the shipped file, inheritance through `serves`, and errors with file, table and key."""

from decimal import Decimal
from pathlib import Path

import pytest

from app.engines import catalogue
from app.settings import DEMO_MODELS, Settings

MODEL = """
[models.tiny]
aliases = ["small"]
context_window = 128
shape = "native"
capabilities = ["async_queue"]
price = { input = 0.1, cached_input = 0, output = 1 }
launch = { model_path = "{data_dir}/models/tiny", max_num_seqs = 4, max_num_batched_tokens = 64 }
"""


def load(tmp_path: Path, text: str) -> catalogue.Catalogue:
    path = tmp_path / "models.toml"
    path.write_text(text)
    catalogue.load.cache_clear()
    return catalogue.load(path)


def test_the_shipped_file_promises_no_name_that_is_not_its_models() -> None:
    assert list(catalogue.load(Settings.model_fields["models_file"].default).models) == ["smollm2-135m-instruct"]


def test_the_demos_file_has_the_shipped_one_and_names_of_workers_ai() -> None:
    shipped = catalogue.load(DEMO_MODELS)
    kimi = shipped.resolve("@cf/moonshotai/kimi-k2.6")
    own = shipped.resolve("smollm2-135m-instruct")
    assert kimi is not None
    assert own is not None
    assert kimi.price is not None
    assert (kimi.served, kimi.shape, kimi.price.input) == (own.name, "openai", Decimal("0.60"))
    assert (own.served, own.shape) == (own.name, "native")
    assert kimi.launch == own.launch
    assert "async_queue" in kimi.capabilities
    for name in ("@cf/openai/gpt-oss-120b", "@cf/openai/gpt-oss-20b"):
        gpt = shipped.resolve(name)
        assert gpt is not None
        assert (gpt.served, gpt.shape, gpt.default_max_tokens) == (own.name, "responses", 256)
    assert shipped.resolve("@cf/unknown/model") is None


def test_a_catalogue_extends_ours_and_its_own_tables_come_first(tmp_path: Path) -> None:
    own = 'extends = "slackwater"\n[models."smollm2-135m-instruct"]\ncontext_window = 64\n'
    found = load(tmp_path, own + '[models.other]\nserves = "smollm2-135m-instruct"\n')
    assert [(name, model.context_window) for name, model in sorted(found.models.items())] == [
        ("other", 64),
        ("smollm2-135m-instruct", 64),
    ]
    assert found.models["other"].launch is None
    assert "smollm2-135m-instruct" in load(tmp_path, 'extends = "slackwater"\n' + MODEL).models


def test_an_alias_means_the_model_itself(tmp_path: Path) -> None:
    found = load(tmp_path, MODEL)
    assert found.resolve("small") is found.resolve("tiny")


def test_who_names_an_unknown_model_is_told_a_similar_one_else_which_there_are() -> None:
    demo = catalogue.load(DEMO_MODELS)
    assert demo.unknown("smollm-135m") == "no such model 'smollm-135m'; did you mean smollm2-135m-instruct?"
    assert demo.unknown("xyz").startswith("no such model 'xyz'; the catalogue has ")


def test_serves_inherits_all_but_aliases(tmp_path: Path) -> None:
    found = load(tmp_path, MODEL + '[models.big]\nserves = "tiny"\ncontext_window = 64\n').resolve("big")
    assert found is not None
    assert (found.name, found.served, found.context_window, found.aliases) == ("big", "tiny", 64, ())
    assert found.price is not None
    assert found.price.output == 1


def test_a_price_may_be_left_out_and_the_rest_of_the_table_has_defaults(tmp_path: Path) -> None:
    text = '[models.e]\ntask = "text-embeddings"\npooling = "cls"\ncontext_window = 64\n'
    found = load(tmp_path, text).resolve("e")
    assert found is not None
    assert (found.price, found.task, found.pooling, found.shape, found.description) == (
        None,
        "text-embeddings",
        "cls",
        "native",
        "",
    )


def test_engine_arguments(tmp_path: Path) -> None:
    model = load(tmp_path, MODEL).resolve("small")
    assert model is not None
    arguments = " ".join(model.engine_arguments(Path("/data")))
    assert arguments.startswith(
        "--model /data/models/tiny --served-model-name tiny --max-model-len 128 --max-num-seqs 4"
    )


ATTACHED = "".join(line for line in MODEL.splitlines(keepends=True) if not line.startswith("launch"))


def test_a_model_of_attached_engines_needs_no_launch_table(tmp_path: Path) -> None:
    found = load(tmp_path, ATTACHED + '[models.big]\nserves = "tiny"\n').resolve("big")
    assert found is not None
    assert found.launch is None
    for ask in (found.to_launch, lambda: found.path(tmp_path), lambda: found.engine_arguments(tmp_path)):
        with pytest.raises(catalogue.CatalogueError, match=r"'tiny' has no \[launch\] table; attach an engine"):
            ask()


@pytest.mark.parametrize(
    ("serves", "name"),
    [([], "tiny"), (["tiny"], "tiny"), (["a", "tiny"], "tiny"), (["a", "small"], "small"), (["theirs"], None)],
)
def test_the_name_to_ask_an_engine_for(tmp_path: Path, serves: list[str], name: str | None) -> None:
    found = load(tmp_path, MODEL + '[models.big]\nserves = "tiny"\n')
    for asked in ("small", "big"):
        model = found.resolve(asked)
        assert model is not None
        assert model.name_at(serves) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "[models]: at least one"),
        ("nonsense", "models.toml is not TOML: "),
        ('extends = "other"\n', 'extends: must be "slackwater"'),
        ("[model.x]\n", "model: unknown; models stand in"),
        (MODEL.replace("context_window = 128", ""), '[models."tiny"] context_window: is missing'),
        (MODEL.replace("= 128", "= 0"), '[models."tiny"] context_window: must be at least 1, not 0'),
        (
            MODEL.replace("max_num_seqs = 4", 'max_num_seqs = "x"'),
            "[models.\"tiny\".launch] max_num_seqs: must be a whole number, not 'x'",
        ),
        (
            MODEL.replace("output = 1", "output = -1"),
            '[models."tiny".price] output: must be between 0 and 1000000, not -1',
        ),
        (MODEL.replace("output = 1", "output = 0.1234567"), "output: must have at most 6 decimal places"),
        (
            MODEL.replace("output = 1", 'output = 1, currency = "euro"'),
            'currency: must be three capital letters, as in "EUR"',
        ),
        (MODEL.replace('["small"]', '"small"'), "aliases: must be a list, not 'small'"),
        (
            MODEL.replace("max_num_seqs = 4", "max_num_seqs = 4, max_seqs = 4"),
            "max_seqs: is not a known name; did you mean",
        ),
        (
            MODEL.replace("max_num_seqs = 4", "max_num_seqs = 4, env = { HF_TOKEN = 7 }"),
            "env] HF_TOKEN: must be a string",
        ),
        (MODEL.replace("max_num_seqs = 4", "max_num_seqs = 4, env = 7"), "launch] env: must be a table, not 7"),
        ("[models.tiny]\ncontext_window = 9\nprice = 3\n", '[models."tiny"] price: must be a table, not 3'),
        (MODEL.replace("async_queue", "asink_queue"), "[models.\"tiny\"] capabilities: must be 'async_queue', "),
        (
            MODEL.replace("context_window", "colour = 1\ncontext_window"),
            '[models."tiny"] colour: is not a known name; known are context_window, ',
        ),
        (MODEL.replace("aliases =", 'name = "y"\naliases ='), '[models."tiny"] name: unknown'),
        (MODEL + '[models.b]\nserves = "c"\n', "[models.\"b\"] serves: 'c' is not a model"),
        (MODEL + '[models.b]\nserves = "tiny"\nlaunch = {}\n', '[models."b"] launch: belongs to'),
        (MODEL + '[models.b]\nserves = "tiny"\naliases = ["small"]\n', "[models.\"b\"] aliases: 'small' already means"),
        (MODEL + '[models.b]\nserves = "tiny"\ncontext_window = 256\n', "256 is more than the 128 of 'tiny'"),
        (MODEL + "[models]\nc = 1\n", "models.toml"),
    ],
)
def test_mistakes_name_file_table_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(catalogue.CatalogueError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "models.toml" in str(caught.value)
    assert "nput " not in str(caught.value)


@pytest.mark.parametrize(
    "flags", ['"--api-key", "hush"', '"--api-key=hush"', '"--seed", "1", "--api_key", "hush"', '"--api-k=hush"']
)
def test_a_key_among_the_flags_would_replace_the_engines_own_and_is_refused(tmp_path: Path, flags: str) -> None:
    with pytest.raises(catalogue.CatalogueError) as caught:
        load(tmp_path, MODEL.replace("max_num_seqs = 4", f"max_num_seqs = 4, flags = [{flags}]"))
    said = str(caught.value)
    assert 'models.toml: [models."tiny".launch] flags: takes no --api-key' in said
    assert "leave the flag out" in said
    assert "hush" not in said


def test_other_flags_that_begin_like_it_are_not(tmp_path: Path) -> None:
    flags = '"--api-server-count", "2", "--seed=1"'
    model = load(tmp_path, MODEL.replace("max_num_seqs = 4", f"max_num_seqs = 4, flags = [{flags}]")).resolve("tiny")
    assert model is not None
    assert model.engine_arguments(tmp_path)[-3:] == ["--api-server-count", "2", "--seed=1"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(catalogue.CatalogueError, match=r"nowhere\.toml cannot be read: no such file"):
        catalogue.load(tmp_path / "nowhere.toml")
