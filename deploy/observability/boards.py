"""What is on each dashboard. A panel's title is the question that it answers.

Whoever is on call has a minute: are callers protected, why does work wait, what broke, what changed?
"""

from panels import BAD, NOT_DELIVERED, WARN, Panel, beside, figure, quantiles

NOW = [
    [
        figure(
            "Callers beside batch / alone",
            "slackwater:ttft_beside_over_alone:ratio",
            "none",
            (1.1, WARN),
            (1.25, BAD),
            about="TTFT p95 of callers beside batch work, over that without. The objective is 1.10.",
            to="callers",
        ),
        figure(
            "Streams slower than 2 s, 1 h",
            'slackwater:bad_events:ratio_1h{slo="ttft"}',
            "percentunit",
            (0.01, WARN),
            (0.05, BAD),
            to="callers",
        ),
        figure(
            "Oldest waiting work", "max(slackwater_oldest_ready_seconds)", "s", (3600, WARN), (21600, BAD), to="queue"
        ),
        figure("Harvested tokens/s", "sum(slackwater:harvested_tokens:rate_5m)", "short", to="engines"),
        figure("Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)', "none", (1, WARN)),
        figure("Parts that answer", 'sum(up{job=~"slackwater-.+"})', "none", to="database"),
    ],
    [
        Panel(
            "Protected? Callers' TTFT p95, beside batch work and alone",
            {beside("slackwater_worker_caller_ttft_seconds"): "{{beside}}"},
            "s",
            to="callers",
        ),
        Panel(
            "Why does work wait? What holds each gate",
            {"slackwater_worker_reason == 1": "{{instance}} {{reason}}"},
            "none",
            stacked=True,
            about="docs/headroom.md explains each reason. `slackwater why ID` says it for one batch.",
            to="engines",
        ),
    ],
    [
        Panel(
            "What waits: tokens, by model",
            {
                "max by (model) (slackwater_waiting_tokens)": "{{model}}",
                "max by (model) (slackwater_inflight_tokens)": "{{model}} running",
            },
            "short",
            to="queue",
        ),
        Panel(
            "What broke? Alerts that fire",
            {'sum by (alertname) (ALERTS{alertstate="firing"})': "{{alertname}}"},
            "none",
            stacked=True,
        ),
    ],
    [
        Panel(
            "What broke? Errors per second",
            {
                "sum by (kind) (rate(slackwater_relay_errors_total[$__rate_interval]))": "callers: {{kind}}",
                'sum(rate(slackwater_submits_total{outcome="failed"}[$__rate_interval]))': "submits failed",
                'sum(rate(slackwater_worker_results_total{outcome="failed"}[$__rate_interval]))': "items failed",
                NOT_DELIVERED: "webhooks: {{outcome}}",
            },
            "ops",
        ),
        Panel(
            "What changed? Versions and restarts",
            {
                "count by (part, version) (slackwater_build_info)": "{{part}} {{version}}",
                'sum by (job) (changes(process_start_time_seconds{job=~"slackwater-.+"}[10m]))': "restarts of {{job}}",
            },
            "none",
            about="Also as marks in every plot.",
        ),
    ],
]
CALLERS = [
    [
        Panel("How long until the first token?", quantiles("slackwater_ttft_seconds", "model"), "s", steps=[(2, BAD)]),
        Panel("How long between tokens?", quantiles("slackwater_itl_seconds", "model"), "s"),
    ],
    [
        Panel("How long does a whole answer take?", quantiles("slackwater_request_seconds", "streamed"), "s"),
        Panel(
            "How many run, how many wait for an engine?",
            {
                "sum by (model) (slackwater_open_requests)": "{{model}} running",
                "sum by (model) (slackwater_queued_requests)": "{{model}} waiting",
            },
        ),
    ],
    [
        Panel(
            "What does batch work cost them? Beside over alone",
            {
                "slackwater:ttft_beside_over_alone:ratio": "TTFT p95",
                "slackwater:itl_beside_over_alone:ratio": "ITL p95",
            },
            "none",
            steps=[(1.1, WARN)],
        ),
        Panel(
            "Gap between tokens, p95, beside batch work and alone",
            {beside("slackwater_worker_caller_itl_seconds"): "{{beside}}"},
            "s",
        ),
    ],
    [
        Panel(
            "Which errors do they get?",
            {"sum by (kind) (rate(slackwater_relay_errors_total[$__rate_interval]))": "{{kind}}"},
            "ops",
            stacked=True,
        ),
        Panel(
            "Does the worker hear of them?",
            {"sum by (outcome) (rate(slackwater_announcements_total[$__rate_interval]))": "{{outcome}}"},
            "ops",
        ),
    ],
    [
        Panel(
            "TTFT p95 by workflow, these two hours",
            {'max by (workflow) (slackwater_workflow_ttft_seconds{class="sync", quantile="0.95"})': "{{workflow}}"},
            "s",
        ),
        Panel(
            "What do the rules of the policy do?",
            {"sum by (rule, effect) (rate(slackwater_policy_matches_total[$__rate_interval]))": "{{rule}} {{effect}}"},
            "ops",
        ),
    ],
]
QUEUE = [
    [
        figure("Open batches", "max(slackwater_open_batches)"),
        figure("Waiting tokens", "sum(max by (model) (slackwater_waiting_tokens))"),
        figure("Waits for money (chunks)", "sum(max by (model) (slackwater_unfunded_chunks))", "none", (1, WARN)),
        figure("Workers", "max(slackwater_live_workers)"),
        figure("Retries that ended with an answer, 1 h", "slackwater:retry_success:ratio_1h", "percentunit"),
        figure("Failed items, 1 h", "slackwater:failed_results:ratio_1h", "percentunit", (0.01, WARN), (0.1, BAD)),
    ],
    [
        Panel("How old is the oldest waiting work?", {"max(slackwater_oldest_ready_seconds)": "oldest"}, "s"),
        Panel(
            "How much waits? Chunks by model",
            {
                "max by (model) (slackwater_ready_chunks)": "{{model}} ready",
                "max by (model) (slackwater_unfunded_chunks)": "{{model}} for money",
            },
        ),
    ],
    [
        Panel(
            "How fast is it served? Tokens per second",
            {"max by (model) (slackwater_pace_tokens_per_second)": "{{model}}"},
        ),
        Panel(
            "Can one rely on an ETA? Error of four of five forecasts",
            {"max by (model) (slackwater_forecast_error_ratio)": "{{model}}"},
            "percentunit",
        ),
    ],
    [
        Panel(
            "How do batches end?",
            {"sum by (state) (increase(slackwater_steward_batches_ended_total[1h]))": "{{state}}"},
            "none",
            stacked=True,
        ),
        Panel(
            "Do submits succeed?",
            {"sum by (outcome) (rate(slackwater_submits_total[$__rate_interval]))": "{{outcome}}"},
            "ops",
        ),
    ],
    [
        Panel(
            "Does the steward keep up?",
            {
                **quantiles("slackwater_steward_round_seconds"),
                "max(slackwater_fold_lag_seconds)": "age of the oldest uncounted chunk",
            },
            "s",
        ),
        Panel(
            "What was lost on the way?",
            {
                "sum(increase(slackwater_steward_workers_lost_total[10m]))": "workers",
                "sum(increase(slackwater_steward_chunks_reaped_total[10m]))": "chunks taken back",
                "sum(increase(slackwater_steward_refused_steps_total[10m]))": "steps refused by the database",
            },
        ),
    ],
]
ENGINES = [
    [
        figure("Engines that are ready", 'max(slackwater_engines{state="ready"})'),
        figure("Share of time with batch work, 1 h", "slackwater:harvested_time:ratio_1h", "percentunit"),
        figure("Plug-in rules", "sum(slackwater_worker_harvest_active)"),
        figure("Oldest telemetry", "max(slackwater_worker_telemetry_age_seconds)", "s", (2, WARN), (10, BAD)),
    ],
    [
        Panel(
            "What was harvested? Tokens per second", {"slackwater:harvested_tokens:rate_5m": "{{kind}}"}, stacked=True
        ),
        Panel(
            "How many batch requests may run, and do?",
            {
                "slackwater_worker_allowance_requests": "{{instance}} allowed",
                "slackwater_worker_in_flight_requests": "{{instance}} in flight",
            },
        ),
    ],
    [
        Panel(
            "What holds the gate? Reason",
            {"slackwater_worker_reason == 1": "{{instance}} {{reason}}"},
            "none",
            stacked=True,
        ),
        Panel(
            "How often does the reason change?",
            {"sum by (reason) (rate(slackwater_worker_reason_changes_total[$__rate_interval])) > 0": "{{reason}}"},
            "ops",
        ),
    ],
    [
        Panel(
            "How long is a step? Predicted and measured",
            {
                "slackwater_worker_predicted_step_seconds": "{{instance}} predicted",
                "slackwater_worker_measured_step_seconds": "{{instance}} measured",
            },
            "s",
        ),
        Panel(
            "What does yielding cost?",
            {
                "rate(slackwater_worker_yields_total[$__rate_interval])": "{{instance}} yields",
                "rate(slackwater_worker_wasted_tokens_total[$__rate_interval])": "{{instance}} wasted tokens",
                "rate(slackwater_worker_harvest_evictions_total[$__rate_interval])": "{{instance}} evictions",
            },
            "ops",
        ),
    ],
    [
        Panel("Is the GPU busy?", {"slackwater_worker_gpu_utilization": "{{gpu}}"}, "percentunit"),
        Panel(
            "Is its memory full?",
            {"slackwater_worker_gpu_memory_used_bytes / slackwater_worker_gpu_memory_total_bytes": "{{gpu}}"},
            "percentunit",
        ),
    ],
]
WORK = [
    [
        Panel(
            "Whose prompts hit the cache? Share by prompt family",
            {"max by (family) (slackwater_family_cached_ratio)": "{{family}}"},
            "percentunit",
        ),
        Panel(
            "How fast do sessions grow? Tokens per turn, p95",
            {'max by (workflow) (slackwater_session_growth_tokens{quantile="0.95"})': "{{workflow}}"},
        ),
    ],
    [
        Panel("How many sessions?", {"max by (workflow) (slackwater_recent_sessions)": "{{workflow}}"}),
        Panel(
            "Do retries help? Share answered",
            {"max by (workflow) (slackwater_retry_success_ratio)": "{{workflow}}"},
            "percentunit",
        ),
    ],
    [
        Panel(
            "How much of each budget is used?",
            {"max by (budget) (slackwater_budget_used_ratio)": "{{budget}}"},
            "percentunit",
            steps=[(0.9, WARN), (1, BAD)],
        ),
        Panel(
            "How far beyond a budget, and how far at most?",
            {
                "max by (budget) (slackwater_budget_overshoot)": "{{budget}}",
                "slackwater_budget_overshoot_bound": "{{account}}{{budget}}: bound",
            },
        ),
    ],
]
WEBHOOKS = [
    [
        figure("Oldest due", "max(slackwater_oldest_due_delivery_seconds)", "s", (60, WARN), (300, BAD)),
        figure("Receivers that fail", "max(slackwater_failing_endpoints)", "none", (1, WARN)),
        figure("Given up", 'max(slackwater_deliveries{state="dead"})', "none", (1, WARN)),
        figure("In flight", "sum(slackwater_notifier_in_flight)"),
    ],
    [
        Panel("How late are they?", quantiles("slackwater_notifier_delay_seconds"), "s", steps=[(60, BAD)]),
        Panel("How long do receivers take?", quantiles("slackwater_notifier_attempt_seconds"), "s"),
    ],
    [
        Panel(
            "What becomes of attempts?",
            {"sum by (outcome) (rate(slackwater_notifier_attempts_total[$__rate_interval]))": "{{outcome}}"},
            "ops",
            stacked=True,
        ),
        Panel("What is not delivered?", {"max by (state) (slackwater_deliveries)": "{{state}}"}, stacked=True),
    ],
]
DATABASE = [
    [
        figure("Answers", "min(slackwater_database_up)", "none"),
        figure("Partitions ahead", "max(slackwater_partitions_ahead_seconds)", "s"),
        figure("Oldest snapshot", "max(slackwater_oldest_snapshot_seconds)", "s", (60, WARN), (600, BAD)),
        figure("Corrected counts", "max(slackwater_cache_drifts_total)", "none", (1, BAD)),
    ],
    [
        Panel("Does vacuum keep up? Dead rows", {"max by (table) (slackwater_dead_tuples)": "{{table}}"}),
        Panel("Is counting behind? Finished chunks", {"max(slackwater_fold_lag_deltas)": "not counted"}),
    ],
    [
        Panel(
            "How much memory do our processes take?",
            {'process_resident_memory_bytes{job=~"slackwater-.+"}': "{{job}} {{instance}}"},
            "bytes",
        ),
        Panel(
            "How much processor time?",
            {'rate(process_cpu_seconds_total{job=~"slackwater-.+"}[$__rate_interval])': "{{job}} {{instance}}"},
            "percentunit",
        ),
    ],
]
DASHBOARDS = {
    "now": ("Slackwater: now", NOW),
    "callers": ("Slackwater: callers", CALLERS),
    "queue": ("Slackwater: queue", QUEUE),
    "engines": ("Slackwater: engines and harvest", ENGINES),
    "work": ("Slackwater: workflows, sessions, budgets", WORK),
    "webhooks": ("Slackwater: webhooks", WEBHOOKS),
    "database": ("Slackwater: database and processes", DATABASE),
}
