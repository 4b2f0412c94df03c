"""`slackwater model …`: the models of this installation's catalogue, and their weights on this machine."""

from contextlib import suppress
from typing import Annotated, Any

import typer

from app.cli import tables
from app.cli.admin import on_database
from app.cli.options import Json, console
from app.cli.options import settings as configured
from app.engines import catalogue
from app.engines import model_weights as weights
from app.engines.catalogue import Catalogue, Model
from app.engines.model_registry import with_adopted
from app.settings import Settings
from app.user_errors import Failure

app = typer.Typer(help="The models of this installation.", no_args_is_help=True)

_COLUMNS = ("model", "served by", "weights", "context", "shape", "capabilities")
_WIDE = ("context", "shape", "capabilities")


@app.command("list")
def show_list(as_json: Json = False) -> None:
    """List the catalogue: names, what serves them, whether weights are at hand."""
    found = described(configured())
    if as_json:
        tables.document(console, found)
        return
    rows = [
        (row["name"], row["served_by"], row["weights"], row["context_window"], row["shape"], row["capabilities"])
        for row in found
    ]
    tables.show(console, _COLUMNS, rows, wide=_WIDE)


@app.command("prepare")
def prepare(name: Annotated[str | None, typer.Argument(help="catalogue model")] = None) -> None:
    """Fetch and convert a model's weights once."""
    current = configured()
    wanted = name or current.engine_model
    if (model := catalogue.load(current.models_file).resolve(wanted)) is None:
        raise Failure(f"No such model {wanted}.", "`slackwater model list` shows them.")
    weights.prepare(current, model)


def described(settings: Settings) -> list[dict[str, Any]]:
    """Every model as `--json` prints it; `weights`: whether an engine of it can start here at once."""
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
    """The catalogue, with what attached engines brought where the database can be reached."""
    file = catalogue.load(settings.models_file)
    with suppress(Failure):
        return on_database(settings, lambda conn: with_adopted(conn, file))
    return file


def _weights(settings: Settings, model: Model) -> str:
    if model.launch is None:
        return "adopted" if model.adopted else "elsewhere"
    return "at hand" if weights.is_ready(settings, model) else "not prepared"
