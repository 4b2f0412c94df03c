"""An engine that somebody else runs: we only know its URL."""

import asyncio

from app.settings import Settings
from workers.gpu.recovery_time import Comeback
from workers.gpu.step_budgets import Harvest


class AttachedEngine:
    """Nothing to start or stop; its slots are what the settings say."""

    mode = "attached"

    def __init__(self, settings: Settings) -> None:
        self.url = settings.engine_url.rstrip("/")
        self.slots = settings.engine_slots
        self.harvest = Harvest(settings)
        self.comeback = Comeback(own=False)

    async def run(self, healthy: object, controls: object) -> None:
        """Until cancelled."""
        await asyncio.Event().wait()
