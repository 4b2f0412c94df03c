"""Claims about delivery over RabbitMQ quorum queues."""

import kombu
import pytest

from app.settings import Settings
from app.tasks import names
from tests.services.support import delivers, maintains

pytestmark = pytest.mark.slow


def test_an_event_is_delivered_over_rabbitmq(settings: Settings, rabbitmq_url: str) -> None:
    delivers(settings.model_copy(update={"broker_url": rabbitmq_url}))
    with kombu.Connection(rabbitmq_url) as connection:
        assert connection.default_channel.queue_declare(names.WEBHOOKS, passive=True).message_count == 0


def test_a_duty_is_done_over_rabbitmq(settings: Settings, rabbitmq_url: str) -> None:
    maintains(settings.model_copy(update={"broker_url": rabbitmq_url}))
    with kombu.Connection(rabbitmq_url) as connection:
        assert connection.default_channel.queue_declare(names.DUTIES, passive=True).message_count == 0


def test_its_queues_are_quorum_queues(settings: Settings, rabbitmq_url: str) -> None:
    from amqp.exceptions import PreconditionFailed

    from app.tasks import broker

    app = broker.celery_app(settings.model_copy(update={"broker_url": rabbitmq_url}), settings.database_url)
    with app.connection_for_write() as connection:
        app.amqp.queues[names.WEBHOOKS](connection.default_channel).declare()
        with pytest.raises(PreconditionFailed, match="x-queue-type"):
            kombu.Queue(names.WEBHOOKS, durable=True)(connection.channel()).declare()
    app.close()
