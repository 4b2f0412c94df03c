"""The long-lived objects of one console process."""

from dataclasses import dataclass
from functools import cached_property
from typing import cast

from starlette.requests import Request

from app.access import origin
from app.access.oidc import Provider
from app.access.roles import Viewer
from app.admission.control import AdmissionControl
from app.batches.installation_status import Installation
from app.batches.why_chain import Polls
from app.console.arriving import Arriving
from app.console.looks import Looks
from app.console.render import Templates
from app.crypto import secret_key
from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.engines.model_registry import ModelRegistry
from app.engines.rate_card import Work
from app.queue.answer_lengths import AnswerLengths
from app.settings import Settings
from app.webhooks.egress import EgressClient


@dataclass(frozen=True)
class Parts:
    """`reader` is for every look, and cannot write. `database` is for what somebody does, and for sessions."""

    settings: Settings
    database: Database
    reader: Database
    models: ModelRegistry
    admission: AdmissionControl
    templates: Templates
    looks: Looks
    egress: EgressClient

    @property
    def catalogue(self) -> Catalogue:
        """The models at this moment, with their prices for calls."""
        return self.models.current

    @property
    def queued_catalogue(self) -> Catalogue:
        """The same with their prices for batches."""
        return self.models.priced(Work.BATCH)

    async def freshen(self) -> None:
        """Read models, policy and budgets again, unless that was just done. Each look calls it; without one nothing is read."""
        await self.models.fresh()
        await self.admission.fresh()

    @cached_property
    def polls(self) -> Polls:
        """The chains of batches, up to 64 in one query."""
        return Polls(self.reader)

    @cached_property
    def arriving(self) -> Arriving:
        """The files that browsers send at this moment."""
        return Arriving()

    @cached_property
    def installation(self) -> Installation:
        """The state of the installation and its problems, as `GET /status` shows them."""
        return Installation(self.reader, self.settings)

    @cached_property
    def lengths(self) -> AnswerLengths:
        """The usual lengths of answers."""
        return AnswerLengths(self.reader, tuple(self.catalogue.models))

    @cached_property
    def oidc(self) -> Provider:
        """The identity provider, if one is set."""
        return Provider(self.settings, secret_key(self.settings))

    @cached_property
    def origin(self) -> str:
        """The origin of our own pages."""
        return origin.of(self.settings)

    @property
    def secure(self) -> bool:
        """Whether browsers reach us by https, so that the cookie may have its strictest form."""
        return self.origin.startswith("https://")


def parts_of(request: Request) -> Parts:
    """The parts that the lifespan created."""
    return cast(Parts, request.app.state.parts)


def viewer_of(request: Request) -> Viewer:
    """Who asks. The guard has let nobody else in."""
    return cast(Viewer, request.scope["viewer"])
