"""The dependencies of routes: the parts of the process, and the account of the API key."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, cast

from fastapi import Depends, Request

from app.access.oidc import Provider
from app.admission.control import AdmissionControl
from app.api import permissions
from app.api.queue_gauges import QueueGauges
from app.api.store_check import StoreCheck
from app.audit import actor
from app.audit.actor import Actor
from app.audit.acts import Act
from app.batches.installation_status import Installation
from app.batches.scale import ScaleSignal
from app.batches.why_chain import Polls
from app.db.pool import Database
from app.engines.catalogue import Catalogue, Model
from app.engines.model_registry import ModelRegistry
from app.engines.rate_card import Work
from app.errors import AuthenticationError, ModelUnknown, NoCapacity
from app.gateway.relay import Gateway
from app.gateway.resent_requests import ResentRequests
from app.queue.answer_lengths import AnswerLengths
from app.sealing.keyring import Keyring
from app.sessions.leases import TurnLeases
from app.sessions.service import Keeper
from app.settings import Settings
from app.tenants.key_cache import KeyCache
from app.tenants.service import Tenant
from app.webhooks.egress import EgressClient

_NO_KEY = "the API key is unknown, expired or revoked"
_AWAY_SECONDS = 5  # after which to ask again for an engine that has never answered


@dataclass(frozen=True)
class Parts:
    """The long-lived objects of one API process."""

    settings: Settings
    database: Database
    models: ModelRegistry
    egress: EgressClient
    gateway: Gateway
    secret_key: bytes = field(repr=False)
    gauges: QueueGauges
    store: StoreCheck
    admission: AdmissionControl
    turns: TurnLeases

    @property
    def catalogue(self) -> Catalogue:
        """The models at this moment, with their prices for calls. One request should read it once."""
        return self.models.current

    @property
    def queued_catalogue(self) -> Catalogue:
        """The same with their prices for batches."""
        return self.models.priced(Work.BATCH)

    @cached_property
    def keys(self) -> KeyCache:
        """The accounts of API keys."""
        return KeyCache(self.database, self.secret_key)

    @cached_property
    def oidc(self) -> Provider:
        """The identity provider of operators, if one is set."""
        return Provider(self.settings, self.secret_key)

    @cached_property
    def lengths(self) -> AnswerLengths:
        """The usual lengths of answers."""
        return AnswerLengths(self.database, tuple(self.catalogue.models))

    @cached_property
    def polls(self) -> Polls:
        """The states of batches."""
        return Polls(self.database)

    @cached_property
    def resends(self) -> ResentRequests:
        """Running calls that their clients may repeat."""
        return ResentRequests(self.gateway.complete)

    @cached_property
    def installation(self) -> Installation:
        """The state of the installation."""
        return Installation(self.database, self.settings)

    @cached_property
    def scale(self) -> ScaleSignal:
        """The demand for engines of each model."""
        return ScaleSignal(self.database)

    def keeper(self, tenant: Tenant) -> Keeper:
        """What reads and writes the conversations of this account."""
        return Keeper(self.database, Keyring.of(self.settings), self.admission.vaults(tenant), tenant.tenant_id)

    def model(self, name: str) -> Model:
        """The model of this name or alias. Raises ModelUnknown; NoCapacity before the attached engine has said what it serves."""
        model = self.catalogue.resolve(name)
        if model is None and self.settings.attached_to and not self.models.offered.models:
            unknown = f"Which models there are is not known yet, so perhaps {name} is one: the attached engine has not answered."
            raise NoCapacity(f"{unknown} Try again in a few seconds.", status=503, retry_after=_AWAY_SECONDS)
        if model is None:
            raise ModelUnknown(f"N{self.catalogue.unknown(name)[1:]}")
        return model


async def parts(request: Request) -> Parts:
    """The parts that the lifespan created. It is async because FastAPI runs synchronous functions in a thread."""
    return cast(Parts, request.app.state.parts)


async def key_holder(request: Request, parts: Annotated[Parts, Depends(parts)]) -> Tenant:
    """The tenant of the bearer key. Raises StorageError if the object store has not been checked yet."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationError("Authentication error: send your API key as `Authorization: Bearer <key>`")
    parts.store.require()
    tenant = await parts.keys.tenant(token.strip())
    if tenant is None:
        actor.enter(actor.stranger(request.state.request_id))
        parts.admission.audit.add(Act.ACCESS_REFUSED, "API key", None, _NO_KEY)
        raise AuthenticationError(f"Authentication error: {_NO_KEY}")
    actor.enter(Actor(f"key {tenant.key_id}", "key", correlation=request.state.request_id))
    try:
        permissions.check(tenant, request)
    except AuthenticationError as error:
        parts.admission.audit.add(
            Act.ACCESS_REFUSED, request.scope["route"].path_format, tenant.account_id, error.message
        )
        raise
    return tenant


async def caller(
    account_id: str, tenant: Annotated[Tenant, Depends(key_holder)], parts: Annotated[Parts, Depends(parts)]
) -> Tenant:
    """The tenant of the bearer key, which must be the account of the path."""
    if tenant.account_id != account_id:
        parts.admission.audit.add(
            Act.ACCESS_REFUSED, "another account", tenant.account_id, "the key is of this account"
        )
        raise AuthenticationError("Authentication error: the API key belongs to another account", status=403)
    return tenant


PartsDep = Annotated[Parts, Depends(parts)]
KeyHolder = Annotated[Tenant, Depends(key_holder)]
Caller = Annotated[Tenant, Depends(caller)]
