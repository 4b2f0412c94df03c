"""An engine that somebody else runs: we only know its URL."""

import asyncio

from app.settings import Settings
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.recovery_time import RecoveryTime


class AttachedEngine:
    """Nothing to start or stop; its slots are what the settings say."""

    mode = "attached"

    def __init__(self, settings: Settings) -> None:
        self.url = settings.engine_url.rstrip("/")
        self.slots = settings.engine_slots
        self.harvest = HarvestControl(settings)
        self.comeback = RecoveryTime(own=False)

    async def run(self, healthy: object, controls: object) -> None:
        """Until cancelled."""
        await asyncio.Event().wait()
