"""What a worker that was never told otherwise commands."""

from app.settings import Settings
from workers.engine.control_page import Commands

COMMANDS = Commands.of(Settings.model_construct())
