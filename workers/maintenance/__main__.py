"""`python -m workers.maintenance`: do duties until SIGTERM or SIGINT."""

import structlog

import app.quick_start  # noqa: F401
from app import processes
from app.memory import collect_seldom, trim_often
from app.settings import load
from app.tasks import names
from app.telemetry import configure
from app.tracing import recorder
from app.user_errors import guarded
from workers.celery_shell import worker as shell
from workers.maintenance import tasks
from workers.maintenance.work import PART
from workers.maintenance.worker import Worker


def main() -> int:
    """Run a maintenance worker. Exit code 0 after SIGTERM or SIGINT."""
    processes.keep_private()
    settings = load()
    configure(settings, PART)
    recorder.configure(settings, PART)
    log = structlog.get_logger(PART)
    log.info("maintenance.starting", broker=settings.broker_url.split(":", 1)[0] or "pgmq")
    collect_seldom()
    trim_often()
    with Worker(settings) as worker:
        celery = shell.celery_app(settings)
        tasks.register(celery, worker)
        code = shell.run(celery, PART, names.DUTIES, worker.stop)
    log.info("maintenance.stopped", code=code)
    return code


if __name__ == "__main__":
    guarded(main)
