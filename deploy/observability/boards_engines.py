"""The dashboards of callers and of the engines that serve them. A panel's title is the question that it answers."""

from panels import BAD, WARN, Panel, beside, figure, quantiles

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
                "slackwater_worker_allowance_requests": "{{engine}} allowed",
                "slackwater_worker_in_flight_requests": "{{engine}} in flight",
            },
        ),
    ],
    [
        Panel(
            "What holds the gate? Reason",
            {"slackwater_worker_reason == 1": "{{engine}} {{reason}}"},
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
                "slackwater_worker_predicted_step_seconds": "{{engine}} predicted",
                "slackwater_worker_measured_step_seconds": "{{engine}} measured",
            },
            "s",
        ),
        Panel(
            "What does yielding cost?",
            {
                "rate(slackwater_worker_yields_total[$__rate_interval])": "{{engine}} yields",
                "rate(slackwater_worker_wasted_tokens_total[$__rate_interval])": "{{engine}} wasted tokens",
                "rate(slackwater_worker_harvest_evictions_total[$__rate_interval])": "{{engine}} evictions",
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
