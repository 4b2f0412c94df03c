"""The steward: one leader reaps leases, promotes and settles batches, creates partitions and hints at due deliveries.

It works without a broker.
"""
