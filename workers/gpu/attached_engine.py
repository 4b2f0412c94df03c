"""An engine that we do not run. Its URL is known and, if it has the plug-in, the folder of its control pages."""

import asyncio

from app.settings import Settings
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.recovery_time import RecoveryTime


class AttachedEngine:
    """There is no process to start or stop. The number of slots is that of the settings, else what the engine reports."""

    mode = "attached"
    ended = None

    def __init__(self, settings: Settings) -> None:
        self.url = settings.engine_url.rstrip("/")
        self.slots = settings.engine_slots
        self.slots_known = self.slots_given = "engine_slots" in settings.model_fields_set
        self.harvest = HarvestControl.attached(settings)
        self.comeback = RecoveryTime(own=False)

    def seen(self, slots: int | None) -> None:
        """Take the number of slots that the engine reports, if the settings have none."""
        if slots is not None and not self.slots_given:
            self.slots, self.slots_known = slots, True

    async def run(self, healthy: object, controls: object) -> None:
        """Command its scheduler, if it runs ours, until cancelled."""
        self.harvest.open()
        try:
            await asyncio.Event().wait()
        finally:
            self.harvest.close()
