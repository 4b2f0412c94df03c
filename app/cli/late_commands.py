"""A group of commands whose modules are imported when they run: all modules together take a second."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from pydantic import Field, ValidationError
from typer.core import TyperCommand, TyperGroup

from app.wrong_values import wrong


@dataclass(frozen=True, slots=True)
class LateCommand:
    """A command or a group of commands: its name, its place as `module:attribute`, its line in the list of commands, and the
    heading that it is listed under.
    """

    heading: str
    name: str
    place: str
    summary: str

    def listed(self) -> TyperCommand:
        """What the list of commands shows, without an import."""
        return TyperCommand(name=self.name, help=self.summary, rich_help_panel=self.heading)

    def imported(self) -> Any:
        """The command itself, with its options."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        parent = typer.Typer()
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=self.name)
        else:
            parent.command(self.name)(found)
        return typer.main.get_group(parent).commands[self.name]


class LateGroup(TyperGroup):
    """Lists its commands by their summaries, and imports the one that is run, completed or asked for help."""

    late: Iterable[LateCommand] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._places = {command.name: command for command in self.late}
        self.commands = {name: command.listed() for name, command in self._places.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, imported."""
        if args[0] in self._places:
            self.commands[args[0]] = self._places.pop(args[0]).imported()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name. What is wrong with a value is said in our words, in place of pydantic's."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = _said(error.__cause__, error.param)
            raise


def _said(error: ValidationError, param: Any) -> str:
    bounds = param.type_descriptor.parameter_info
    return wrong(error.errors(include_url=False)[0], of=Field(ge=bounds.min, le=bounds.max))
