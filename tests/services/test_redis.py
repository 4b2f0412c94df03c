"""Claims about delivery over Redis."""

import pytest

from app.settings import Settings
from tests.services.support import delivers, maintains

pytestmark = pytest.mark.slow


def test_an_event_is_delivered_over_redis(settings: Settings, redis_url: str) -> None:
    delivers(settings.model_copy(update={"broker_url": redis_url}))


def test_a_duty_is_done_over_redis(settings: Settings, redis_url: str) -> None:
    maintains(settings.model_copy(update={"broker_url": redis_url}))
