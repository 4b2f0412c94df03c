"""Comments of columns in plain English.

COMMENT changes the catalogue only: it rewrites no row, and its lock (SHARE UPDATE EXCLUSIVE) lets others read and write.

Revision ID: 0022
Revises: 0021
"""

from alembic import op

from app.db.migrate import run_script

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

SCRIPT = """
COMMENT ON COLUMN pool.context_window IS 'context window in tokens that callers are promised; null: as in the catalogue';
COMMENT ON COLUMN pool.task IS 'task of an adopted model; null: as in the catalogue';
COMMENT ON COLUMN engine.pool_id IS 'null: it is not known yet which model it serves';
COMMENT ON COLUMN engine.slots IS 'how many requests it runs at once';
COMMENT ON COLUMN engine.worker_id IS 'the worker that controls it, as long as the lease of that worker is valid';
COMMENT ON COLUMN engine.signal IS 'the signal that decided; its value was compared with threshold';
COMMENT ON COLUMN engine.reason_since IS 'when state or reason last changed';
COMMENT ON COLUMN engine.start_seconds IS 'how long it recently took to start or to recover, as its worker measured';
COMMENT ON COLUMN engine.expected_at IS 'when it is expected to answer; null: it answers, or the time is not known';
COMMENT ON COLUMN engine.intake IS 'whether it takes new work, as the operator set it; it outlives the worker';
COMMENT ON COLUMN engine.sync_in_flight IS 'announced by gateways, not ended';
COMMENT ON COLUMN engine.served_name IS 'its own name for the model; null: the same as the pool''s';
COMMENT ON COLUMN engine.serves IS 'all names that it serves';
COMMENT ON COLUMN engine.max_model_len IS 'its context window in tokens; null: it does not report it';
COMMENT ON COLUMN engine.scheduling_policy IS 'null: it does not report it';
COMMENT ON COLUMN engine.protection IS 'inside: our scheduler shares each step; outside: only the number of batch requests is controlled';
COMMENT ON COLUMN engine.problems IS 'list of code, message and remedy';
COMMENT ON COLUMN batch.run IS 'number of the current run, from 1';
COMMENT ON COLUMN batch.deadline IS 'when the fair order tries to have it done';
COMMENT ON COLUMN batch.opened_at IS 'when the current run began';
COMMENT ON COLUMN batch.kind IS 'response: a background response; flex: a flex call; both have one item';
COMMENT ON COLUMN batch.tells_items IS 'a subscription wants events of its items, so a flush writes them';
COMMENT ON COLUMN batch.open_ended IS 'an answer without a limit of its own may use the rest of the context window';
COMMENT ON COLUMN item_payload.stored IS 'true: body is the key of the object that contains the body';
COMMENT ON COLUMN item_result.stored IS 'true: body is the key of the object that contains the body';
COMMENT ON COLUMN chunk.seqs IS 'its items in their order (retries, grouped prefixes); null: lo to hi';
COMMENT ON COLUMN chunk.attempt IS 'how many losses of workers were charged to it';
COMMENT ON COLUMN chunk.deaths IS 'engine deaths charged to its items';
COMMENT ON COLUMN sched.served_tokens IS 'estimated tokens of all items done; never decreases';
COMMENT ON COLUMN pace.served_tokens IS 'estimated tokens of all tenants; never decreases';
COMMENT ON COLUMN pace.tokens_per_second IS 'pace over the last minutes with work; null: too little time was measured';
COMMENT ON COLUMN pace.spread IS 'relative error of recent forecasts; null: too little time';
COMMENT ON COLUMN worker.renewed_at IS 'when the lease was last renewed; not indexed, like lease_until';
COMMENT ON COLUMN response_events.last IS 'sequence number of the last event of the row';
COMMENT ON COLUMN file.lines IS 'number of lines that are not blank';
COMMENT ON COLUMN file.problems IS 'errors of its lines, as a batch of the file would list them; null: none';
COMMENT ON COLUMN file.demand IS 'what a batch of the file requests, by model: requests, prompt_tokens, answer_tokens, most_tokens';
COMMENT ON COLUMN file_batch.request_id IS 'that of its batch: the id that callers see';
COMMENT ON COLUMN file_batch.batch_id IS 'null: the batch was refused';
COMMENT ON COLUMN file_batch.output_seconds IS 'how long its files are kept after its end; null: as long as the batch';
COMMENT ON COLUMN file_batch.terms IS 'hash of all parameters of the create beside the file; null: not created from a file, or older than this column';
COMMENT ON COLUMN upload.bytes IS 'size that the caller announced';
COMMENT ON COLUMN upload.file_seconds IS 'how long the file is kept after the upload was completed';
COMMENT ON COLUMN object_store.marker IS 'id of the marker object, which every process must find in its store';
COMMENT ON COLUMN object_store.writer IS 'the process that wrote the marker, and its host';
COMMENT ON COLUMN object_store.place IS 'the address of the store, as the writer has it';
COMMENT ON COLUMN object_store.bodies IS 'whether the store may contain bodies of items';
COMMENT ON COLUMN tenant.tenant_id IS 'the id of a deleted account is never used again';
COMMENT ON COLUMN tenant.retention_days IS 'how long its batches are kept at least; null: as in the settings';
COMMENT ON COLUMN api_key.requests_per_minute IS 'limit of synchronous requests; null: as in the settings';
COMMENT ON COLUMN api_key.tokens_per_minute IS 'limit of estimated tokens of synchronous requests; null: as in the settings';
COMMENT ON COLUMN key_usage.minute IS 'the minute to which the counts belong';
COMMENT ON COLUMN key_usage.tokens IS 'estimated tokens of prompts and answers';
COMMENT ON COLUMN decision.signal IS 'the signal whose value was compared with threshold';
COMMENT ON COLUMN decision.credited IS 'batch requests in flight that were admitted after the telemetry was read';
COMMENT ON COLUMN event.n IS 'its number among the events of the same batch, run and kind';
COMMENT ON COLUMN endpoint.queue_id IS 'the queue from which its events are fetched; null: they are sent';
COMMENT ON COLUMN endpoint.previous_secret IS 'the secret before a rotation, which also signs until previous_until';
COMMENT ON COLUMN endpoint.ordered IS 'an event of a batch is sent after the deliveries of its earlier events have ended';
COMMENT ON COLUMN endpoint.paced_until IS 'until then, the deliveries that were sent use up max_per_second';
COMMENT ON COLUMN endpoint.failures IS 'failed attempts in a row';
COMMENT ON COLUMN endpoint.open_until IS 'circuit breaker: nothing is sent before then, and afterwards one delivery at a time';
COMMENT ON COLUMN endpoint.warned IS 'how many warning steps it has reached since it began to fail';
COMMENT ON COLUMN endpoint.hinted_at IS 'when a hint for its due deliveries was last published; null: none is expected';
COMMENT ON COLUMN delivery.next_attempt_at IS 'infinity: the event is fetched, not sent';
COMMENT ON COLUMN delivery.attempts_before IS 'attempts before it was last sent again by hand';
COMMENT ON COLUMN delivery.probe IS 'a test event; it is also sent to endpoints that are not active';
COMMENT ON COLUMN attempt.address IS 'the IP address that answered';
"""

DOWN = """
COMMENT ON COLUMN pool.context_window IS 'tokens that its engines promise; null: the catalogue says';
COMMENT ON COLUMN pool.task IS 'of a model whose window stands here';
COMMENT ON COLUMN engine.pool_id IS 'null: nobody knows yet what it serves';
COMMENT ON COLUMN engine.slots IS 'requests it runs at once';
COMMENT ON COLUMN engine.worker_id IS 'holder of the controller lease; valid while that worker''s lease is';
COMMENT ON COLUMN engine.signal IS 'what decided: it was value against threshold';
COMMENT ON COLUMN engine.reason_since IS 'since when state and reason are what they are';
COMMENT ON COLUMN engine.start_seconds IS 'how long it took lately to come back, as its worker learned';
COMMENT ON COLUMN engine.expected_at IS 'when it should answer; null: it does, or nobody knows';
COMMENT ON COLUMN engine.intake IS 'whether it takes new work: the operator''s word, which outlives its worker';
COMMENT ON COLUMN engine.sync_in_flight IS 'those that a gateway announced';
COMMENT ON COLUMN engine.served_name IS 'what it calls the model; null: as the pool does';
COMMENT ON COLUMN engine.serves IS 'every name that it serves';
COMMENT ON COLUMN engine.max_model_len IS 'its context window in tokens, if it tells';
COMMENT ON COLUMN engine.scheduling_policy IS 'null: it does not tell';
COMMENT ON COLUMN engine.protection IS 'where synchronous requests are protected: in each step of the engine, or by what it is given';
COMMENT ON COLUMN engine.problems IS 'code, message, remedy of each';
COMMENT ON COLUMN batch.run IS 'grows when part of it is run again';
COMMENT ON COLUMN batch.deadline IS 'what the fair order aims at';
COMMENT ON COLUMN batch.opened_at IS 'when its run began';
COMMENT ON COLUMN batch.kind IS 'response, flex: one request that its caller waits for';
COMMENT ON COLUMN batch.tells_items IS 'somebody asked to hear of its items, so that flushes write their events';
COMMENT ON COLUMN batch.open_ended IS 'answers without a limit of their own may take what is left of the context';
COMMENT ON COLUMN item_payload.stored IS 'body is the key of the object that holds it';
COMMENT ON COLUMN item_result.stored IS 'body is the key of the object that holds it';
COMMENT ON COLUMN chunk.seqs IS 'leased order where it is not lo..hi: retries, grouped prefixes';
COMMENT ON COLUMN chunk.attempt IS 'workers that were lost with it';
COMMENT ON COLUMN chunk.deaths IS 'engine deaths that its item was in';
COMMENT ON COLUMN sched.served_tokens IS 'estimated tokens of items done, ever growing';
COMMENT ON COLUMN pace.served_tokens IS 'of all tenants of the pool, ever growing';
COMMENT ON COLUMN pace.tokens_per_second IS 'of the last minutes with work, as measured then; null: too short a time';
COMMENT ON COLUMN pace.spread IS 'share by which the pace lately missed what came; null: too short a time';
COMMENT ON COLUMN worker.renewed_at IS 'when the lease was last renewed; not indexed, as lease_until';
COMMENT ON COLUMN response_events.last IS 'of the last one';
COMMENT ON COLUMN file.lines IS 'that are not blank';
COMMENT ON COLUMN file.problems IS 'what is wrong with its lines, as a batch of it would tell; null: nothing';
COMMENT ON COLUMN file.demand IS 'what a batch of it asks for, by model: requests, prompt_tokens, answer_tokens, most_tokens';
COMMENT ON COLUMN file_batch.request_id IS 'of its batch; the id callers see';
COMMENT ON COLUMN file_batch.batch_id IS 'null: refused';
COMMENT ON COLUMN file_batch.output_seconds IS 'its files go so long after its end; null: with the batch';
COMMENT ON COLUMN file_batch.terms IS 'hash of all that was asked for beside the file; null: came by another way, or before this column';
COMMENT ON COLUMN upload.bytes IS 'as the caller announced';
COMMENT ON COLUMN upload.file_seconds IS 'the file goes so long after it was completed';
COMMENT ON COLUMN object_store.marker IS 'the object that every part must find';
COMMENT ON COLUMN object_store.writer IS 'the part that put it there, and its host';
COMMENT ON COLUMN object_store.place IS 'the store as the writer calls it';
COMMENT ON COLUMN object_store.bodies IS 'whether bodies of items may lie there';
COMMENT ON COLUMN tenant.tenant_id IS 'never used again';
COMMENT ON COLUMN tenant.retention_days IS 'its batches are kept at least this long; null: as the settings say';
COMMENT ON COLUMN api_key.requests_per_minute IS 'of synchronous requests; null: as the settings say';
COMMENT ON COLUMN api_key.tokens_per_minute IS 'estimated, of synchronous requests; null: as the settings say';
COMMENT ON COLUMN key_usage.minute IS 'the minute that the counts are of';
COMMENT ON COLUMN key_usage.tokens IS 'estimated, prompt and answer';
COMMENT ON COLUMN decision.signal IS 'what was compared: value against threshold';
COMMENT ON COLUMN decision.credited IS 'of these, admitted since the telemetry was taken';
COMMENT ON COLUMN event.n IS 'which of several of one kind';
COMMENT ON COLUMN endpoint.queue_id IS 'what its events are fetched by; null: they are sent';
COMMENT ON COLUMN endpoint.previous_secret IS 'signs too, until previous_until';
COMMENT ON COLUMN endpoint.ordered IS 'of one batch, an event is sent when those before it have come to their end';
COMMENT ON COLUMN endpoint.paced_until IS 'what was sent is paid for by then, at max_per_second';
COMMENT ON COLUMN endpoint.failures IS 'in a row';
COMMENT ON COLUMN endpoint.open_until IS 'breaker: nothing is sent before, then one at a time';
COMMENT ON COLUMN endpoint.warned IS 'how many steps of the ladder its owner was told of';
COMMENT ON COLUMN endpoint.hinted_at IS 'when the broker was last told';
COMMENT ON COLUMN delivery.next_attempt_at IS 'infinity: it is fetched';
COMMENT ON COLUMN delivery.attempts_before IS 'made before it was last sent anew by hand';
COMMENT ON COLUMN delivery.probe IS 'a test event; it is sent to endpoints that are not active, too';
COMMENT ON COLUMN attempt.address IS 'that answered';
"""


def upgrade() -> None:
    """The new comments."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """The former comments."""
    run_script(op.get_bind(), DOWN)
