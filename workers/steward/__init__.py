"""The steward: one leader that reaps leases, promotes, settles, keeps partitions, hints deliveries. Needs no broker."""
