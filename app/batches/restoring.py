"""Restores the values behind placeholders in results, for keys that may read them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from app.policy import vaults
from app.policy.redaction import restored_body
from app.policy.vaults import Vaults
from app.queue.reads import ItemResult
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restores the results of one account."""

    vaults: Vaults

    def item(self, batch_id: int, found: ItemResult) -> ItemResult:
        """One result with its request, if it was read too."""
        values = self.vaults.opened(found.vault, vaults.of_item(batch_id, found.seq))
        if not values:
            return found
        body = None if found.body is None else restored_body(found.body, values, of_answer=True)
        request = None if found.item is None else restored_body(found.item, values, of_answer=False)
        return found._replace(body=body, item=request)

    async def pages(self, batch_id: int, pages: AsyncIterator[list[ItemResult]]) -> AsyncIterator[list[ItemResult]]:
        """Pages of results."""
        async for page in pages:
            yield [self.item(batch_id, item) if item.vault else item for item in page]


def restorer(secret: bytes, tenant: Tenant) -> Restorer | None:
    """What restores results for this caller. None: its key may not read the values."""
    return Restorer(Vaults(secret, tenant.tenant_id)) if tenant.scope.restore else None
