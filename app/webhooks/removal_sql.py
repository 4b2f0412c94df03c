"""SQL that removes the webhooks of deleted accounts, and deleted endpoints."""

from app.states import ENDPOINT

# For a deleted account: its events with their deliveries, then its endpoints.
DELETE_EVENTS = """
with oldest as materialized (select event_id from event where tenant_id = %(tenant_id)s order by event_id limit %(limit)s),
deleted_deliveries as (delete from delivery using oldest where delivery.event_id = oldest.event_id)
delete from event using oldest where event.event_id = oldest.event_id"""
DELETE_ENDPOINTS = "delete from endpoint where tenant_id = %(tenant_id)s"
ENDPOINT_IDS = f"select endpoint_id from endpoint where tenant_id = %(tenant_id)s and {ENDPOINT.guard('disable')}"

# For a deleted endpoint: its deliveries in steps, then the endpoint. One cascade over all of them would block every transaction
# that writes an event. The last step finds at most the deliveries that were written while the endpoint was being closed.
DELETE_DELIVERIES = f"""
with page as materialized (
    select d.delivery_id from endpoint e join delivery d using (endpoint_id)
    where {ENDPOINT.guard("remove", "e.")} limit %(limit)s for update of d skip locked
)
delete from delivery using page where delivery.delivery_id = page.delivery_id
"""
DELETE_CLOSED_ENDPOINTS = f"""
with emptied as materialized (
    select e.endpoint_id from endpoint e
    where {ENDPOINT.guard("remove", "e.")} and not exists (select from delivery d where d.endpoint_id = e.endpoint_id)
    for update skip locked
)
delete from endpoint using emptied where endpoint.endpoint_id = emptied.endpoint_id
"""
