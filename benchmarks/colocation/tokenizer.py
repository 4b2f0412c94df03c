"""Where a model of the catalogue has its tokenizer, for clients that count tokens."""

from pathlib import Path

from app.engines import catalogue
from app.settings import Settings


def tokenizer_of(model: str) -> Path:
    """The folder of the model's tokenizer. Exits if the catalogue has no such model or its weights are not there."""
    settings = Settings()
    entry = catalogue.load(settings.models_file).resolve(model)
    if entry is None or entry.launch is None:
        raise SystemExit(f"no model {model} to start in {settings.models_file}")
    folder = Path(entry.path(settings.data_dir))
    if "{data_dir}" in entry.launch.model_path and not (folder / "config.json").exists():
        raise SystemExit(f"{folder} is missing; run `slackwater model prepare`")
    return folder
