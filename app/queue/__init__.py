"""The durable queue: a lease covers a range of items, every item has its own result, and the first result wins.

    submit     ingest, chunking, copy_format
    work       service (a worker's verbs), heartbeat, poison, charges
    fair order fair_order_sql (virtual time, claims), order_deltas, order_drift
    a caller   batch_state (pause, resume, cancel, retry)
    steward    reaping, lost_workers, expiry, chunk_sweeps, settling,
               pool_status (what workers and autoscalers need to know)
    reads      reads, listing, failures, running_batches, overview, response_log
    forecasts  estimate, pace, pace_log, answer_lengths
    storage    tables, partitions, retention, removal

The statements of a module `x` are in `x_sql`; those of `service` are in `worker_sql` and `fair_order_sql`, those of `ingest` in
`submit_sql`, those of `reads` in `read_sql` and `forecast_sql`. Those on one batch run on its day's tables (`app.db.day_tables`).
"""
