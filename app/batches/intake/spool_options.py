"""The spool of a submit: its folder and limits by the settings, and its sealing by the settings and the policy."""

from app import crypto
from app.admission.admission import Admission
from app.batches.intake.spool import Sealing, SpoolOptions, VaultSealing
from app.db.pool import Database
from app.queue.bodies import new_seal, new_vault_seal
from app.sealing.keyring import Keyring, has_keys, wanted
from app.settings import Settings
from app.tenants.service import Tenant


async def spool_options(
    database: Database, settings: Settings, tenant: Tenant, admission: Admission, batch_id: int
) -> SpoolOptions:
    """The settings of a submit's spool. Raises KeysUnavailable, where the batch is to be sealed."""
    sealing = vault_sealing = None
    if wanted(settings, admission.encrypts):
        seal, key = await new_seal(database, Keyring.of(settings), tenant.tenant_id, batch_id)
        sealing = Sealing(seal, key, crypto.derive(crypto.secret_key(settings), b"request hashes"))
    elif has_keys(settings):
        vault_sealing = VaultSealing(*new_vault_seal(batch_id))
    redaction = admission.redaction
    return {
        "vaults": admission.vaults,
        "vault_sealing": vault_sealing,
        "hash_key": None if redaction is None else redaction.hash_key,
        "folder": settings.data_dir / "spool",
        "memory_bytes": int(settings.spool_memory_mb * 2**20),
        "line_bytes": int(settings.ndjson_line_mb * 2**20),
        "max_items": settings.batch_items,
        "object_bytes": settings.object_kb * 1024 or None,
        "sealing": sealing,
    }
