"""`slackwater model …`: list the models of this installation, and prepare weights on this machine."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import tables
from app.cli.data_dir_lock import running
from app.cli.database import on_database
from app.cli.options import Json, console, errors
from app.cli.options import settings as configured
from app.engines import catalogue
from app.engines import model_weights as weights
from app.engines.catalogue import Catalogue, Model
from app.engines.model_registry import with_adopted
from app.sentences import ended
from app.settings import Settings
from app.user_errors import Failure

app = typer.Typer(help="List the models of this installation; prepare their weights.", no_args_is_help=True)

_COLUMNS = ("model", "served by", "weights", "context", "shape", "capabilities")
_WIDE = ("context", "shape", "capabilities")


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List the models of the installation that runs on this machine, or of these settings: name, name at the engine, weights."""
    settings = configured()
    owner = running(settings.data_dir)
    if owner is not None and owner.models_file:
        settings = settings.model_copy(update={"models_file": Path(owner.models_file)})
    elif not as_json:
        said = f"No installation runs on {settings.data_dir}; this is the catalogue of these settings: {settings.models_file}"
        tables.sentence(errors, said)
    found = described(settings)
    if as_json:
        tables.document(console, found)
        return
    rows = [
        (row["name"], row["served_by"], row["weights"], row["context_window"], row["shape"], row["capabilities"])
        for row in found
    ]
    tables.show(console, _COLUMNS, rows, wide=_WIDE, numbers=("context",))


@app.command("prepare")
def prepare(
    name: Annotated[str | None, typer.Argument(help="catalogue model; default: the engine's model")] = None,
) -> None:
    """Download and convert the weights of a model."""
    current = configured()
    requested = name or current.engine_model
    models = catalogue.load(current.models_file)
    if (model := models.resolve(requested)) is None:
        raise Failure(ended(f"N{models.unknown(requested)[1:]}"), "`slackwater model list` shows all.")
    weights.prepare(current, model)


def described(settings: Settings) -> list[dict[str, Any]]:
    """Every model as `--json` prints it. `weights` says whether an engine can start with it here at once."""
    return [
        {
            "name": model.name,
            "aliases": list(model.aliases),
            "served_by": model.served,
            "task": model.task,
            "context_window": model.context_window,
            "shape": model.shape,
            "capabilities": sorted(model.capabilities),
            "weights": _weights(settings, model),
        }
        for model in known_models(settings).models.values()
    ]


def known_models(settings: Settings) -> Catalogue:
    """The catalogue, with the models of attached engines if the database can be reached."""
    file = catalogue.load(settings.models_file)
    with suppress(Failure):
        return on_database(settings, lambda conn: with_adopted(conn, file))
    return file


def _weights(settings: Settings, model: Model) -> str:
    if model.launch is None:
        return "adopted" if model.adopted else "elsewhere"
    return "at hand" if weights.is_ready(settings, model) else "not prepared"
