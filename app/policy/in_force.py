"""The policy that this process follows: the newest version, read from the database twice a second, or by who seldom needs it."""

import asyncio
from typing import NoReturn

import structlog

from app import clock
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.engines.model_registry import ModelRegistry
from app.errors import PolicyUnknown
from app.policy import service
from app.policy.language import parse
from app.policy.rules import NO_POLICY, Policy

REFRESH_SECONDS = 0.5  # a new version is followed everywhere within a second
PATIENCE_SECONDS = 2.0
_log = structlog.get_logger("policy")


class PolicyInForce:
    """Every request reads `current`, which stays as it is while the database does not answer."""

    def __init__(self, database: Database, models: ModelRegistry) -> None:
        self._current: Policy | None = None
        self._database = database
        self._models = models
        self._read_at = float("-inf")

    @property
    def known(self) -> bool:
        """Whether one was read since the start."""
        return self._current is not None

    @property
    def current(self) -> Policy:
        """The policy. Raises PolicyUnknown while none was read since the start: a rule that nobody knows could refuse."""
        if self._current is None:
            raise PolicyUnknown("The policy could not be read yet; send the request again in a few seconds")
        return self._current

    @current.setter
    def current(self, policy: Policy) -> None:
        self._current = policy

    async def keep(self) -> NoReturn:
        """Follow the newest version until cancelled. `renew` has to be called once before."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self.renew()

    async def fresh(self) -> None:
        """As `renew`, unless that was done within REFRESH_SECONDS: for a process that does not `keep` it."""
        if not self.known or clock.monotonic() - self._read_at >= REFRESH_SECONDS:
            await self.renew()

    async def renew(self) -> None:
        """Read the newest version if there is a newer one."""
        self._read_at = clock.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._database.relaxed() as conn:
                newest = await service.newest_id(conn)
                if newest == NO_POLICY.policy_id:
                    self._current = self._current or NO_POLICY
                elif self._current is None or newest != self._current.policy_id:
                    found = await service.newest(conn)
                    assert found is not None
                    rules = await asyncio.to_thread(parse, found.text, self._models.current, lenient=True)
                    self.current = Policy(found.policy_id, rules)
                    _log.info("policy.followed", policy=found.policy_id, rules=len(rules))
        except (TimeoutError, *TRANSIENT):
            pass
        except Exception:  # the text is one that a newer version understands
            _log.exception("policy.not_read")
