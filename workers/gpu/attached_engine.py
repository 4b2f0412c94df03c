"""A vLLM server that we do not run. Only its URL is known."""

import asyncio

from app.settings import Settings
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.recovery_time import RecoveryTime


class AttachedEngine:
    """There is no process to start or stop. The settings give the number of slots."""

    mode = "attached"

    def __init__(self, settings: Settings) -> None:
        self.url = settings.engine_url.rstrip("/")
        self.slots = settings.engine_slots
        self.harvest = HarvestControl(settings)
        self.comeback = RecoveryTime(own=False)

    async def run(self, healthy: object, controls: object) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()
