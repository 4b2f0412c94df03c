"""`python -m workers.notifier`: deliver webhooks until SIGTERM or SIGINT."""

import structlog

import app.quick_start  # noqa: F401
from app import processes
from app.settings import load
from app.tasks import names
from app.telemetry import configure
from app.tracing import recorder
from app.user_errors import guarded
from workers.celery_shell import worker
from workers.notifier import tasks
from workers.notifier.async_bridge import AsyncBridge


def main() -> int:
    """Run the notifier. Exit code 0 after SIGTERM or SIGINT."""
    processes.keep_private()
    settings = load()
    configure(settings, "notifier")
    recorder.configure(settings, "notifier")
    log = structlog.get_logger()
    log.info(
        "notifier.starting", broker=settings.broker_url.split(":", 1)[0] or "pgmq", sends=settings.webhook_concurrency
    )
    with AsyncBridge(settings) as bridge:
        celery = worker.celery_app(settings)
        tasks.register(celery, bridge)
        code = worker.run(celery, "notifier", names.WEBHOOKS)
    log.info("notifier.stopped", code=code)
    return code


if __name__ == "__main__":
    guarded(main)
