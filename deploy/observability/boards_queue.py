"""The dashboards of work that waits: the queue, workflows and budgets, webhooks, the database. A title is a question."""

from panels import BAD, WARN, Panel, figure, quantiles

QUEUE = [
    [
        figure("Open batches", "max(slackwater_open_batches)"),
        figure("Waiting tokens", "sum(max by (model) (slackwater_waiting_tokens))"),
        figure("Waits for money (chunks)", "sum(max by (model) (slackwater_unreserved_chunks))", "none", (1, WARN)),
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
                "max by (model) (slackwater_unreserved_chunks)": "{{model}} for money",
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
            "How much of each budget is spent?",
            {"max by (budget) (slackwater_budget_spent_ratio)": "{{budget}}"},
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
        figure("Duties that fail", "sum(max by (duty) (slackwater_duty_failing))", "none", (1, WARN)),
    ],
    [
        Panel("Does vacuum keep up? Dead rows", {"max by (table) (slackwater_dead_tuples)": "{{table}}"}),
        Panel("Is counting behind? Finished chunks", {"max(slackwater_fold_lag_deltas)": "not counted"}),
    ],
    [
        Panel(
            "How late are duties?",
            {"max by (duty) (slackwater_duty_late_seconds)": "{{duty}}"},
            "s",
            steps=[(86_400, BAD)],
        ),
        Panel("How long do duties take?", {"max by (duty) (slackwater_duty_seconds)": "{{duty}}"}, "s"),
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
