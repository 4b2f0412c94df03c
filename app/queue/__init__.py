"""The durable queue: a lease over a range of items, results per item, first result wins."""
