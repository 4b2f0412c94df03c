"""Tables of what this installation is made of: its settings and its models."""

from rich.table import Table

from app.cli.text import plain
from app.engines import catalogue
from app.engines.catalogue import Model
from app.engines.model import is_ready
from app.settings import Settings, masked


def settings_table(settings: Settings) -> Table:
    """Every setting with its value in force, passwords hidden, and what it means."""
    table = Table("variable", "value", "meaning")
    for name, value in settings:
        description = Settings.model_fields[name].description
        table.add_row(f"SLACKWATER_{name.upper()}", plain(masked(value)), plain(description))
    return table


def models_table(settings: Settings) -> Table:
    """Every model of the catalogue, and whether an engine of it can start here at once."""
    table = Table("model", "served by", "context", "result shape", "capabilities", "weights")
    for found in catalogue.load(settings.models_file).models.values():
        capabilities = ", ".join(sorted(found.capabilities))
        cells = (found.name, found.served, found.context_window, found.shape, capabilities, _weights(settings, found))
        table.add_row(*map(plain, cells))
    return table


def _weights(settings: Settings, model: Model) -> str:
    if model.launch is None:
        return "elsewhere"
    return "at hand" if is_ready(settings, model) else "not prepared"
