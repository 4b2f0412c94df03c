"""The pure laws have the shipped settings as their defaults, so that what is simulated is what ships."""

from app.headroom.controller import HeadroomLimits
from app.settings import Settings
from workers.engine.control_page import Commands
from workers.gpu.control_loop import limits_of
from workers.gpu.harvest_control import commands_of

SHIPPED = Settings.model_construct()  # as if nothing were in the environment


def test_the_controllers_defaults_are_the_settings() -> None:
    given = limits_of(SHIPPED, 32)
    assert given == HeadroomLimits(given.cap, given.slots, given.reserve, given.kv_ceiling, given.stale_seconds)


def test_the_schedulers_defaults_are_the_settings() -> None:
    assert commands_of(SHIPPED) == Commands()
