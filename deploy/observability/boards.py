"""What is on each dashboard. A panel's title is the question that it answers.

Whoever is on call has a minute: are callers protected, why does work wait, what broke, what changed?
"""

from boards_engines import CALLERS, ENGINES
from boards_queue import DATABASE, QUEUE, WEBHOOKS, WORK
from panels import BAD, NOT_DELIVERED, WARN, Panel, beside, figure

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
            {"slackwater_worker_reason == 1": "{{engine}} {{reason}}"},
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

DASHBOARDS = {
    "now": ("Slackwater: now", NOW),
    "callers": ("Slackwater: callers", CALLERS),
    "queue": ("Slackwater: queue", QUEUE),
    "engines": ("Slackwater: engines and harvest", ENGINES),
    "work": ("Slackwater: workflows, sessions, budgets", WORK),
    "webhooks": ("Slackwater: webhooks", WEBHOOKS),
    "database": ("Slackwater: database and processes", DATABASE),
}
