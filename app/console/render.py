"""Templates. Everything that they print is escaped; none of them may say otherwise (a test looks)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.console.static_files import StaticFiles
from app.console.views import text, times

FOLDER = Path(__file__).parent


class Templates:
    """The templates of this package, compiled once."""

    def __init__(self, files: StaticFiles) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals["static"] = files.url
        self._environment.filters.update(_filters())

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """The template of this name, without `.html`."""
        return self._environment.get_template(f"{name}.html").render(context)


def _filters() -> dict[str, Callable[..., Any]]:
    return {
        "count": text.count,
        "si": text.si,
        "money": text.money,
        "inert": text.inert,
        "short": text.short,
        "iso": times.iso,
        "clock": times.clock_time,
        "span": times.span,
    }
