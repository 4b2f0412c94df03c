"""For every alert: series on which it fires, and similar ones on which it does not. `promtool test rules` runs them.

A series is its name with labels, and its values a step apart in promtool's notation: `0+10x60` begins at 0 and grows by 10 for
60 steps, `1x60` stays.
"""

from dataclasses import dataclass

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """`fires` and `calm` are evaluated after `minutes`. `step`: minutes between two values."""

    alert: str
    fires: Series
    calm: Series
    minutes: int = 30
    severity: str = ""  # only where an alert has two
    step: int = 1

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.alert} {self.severity}".strip()


def steady(value: float, minutes: int = 120) -> str:
    """A gauge."""
    return f"{value}x{minutes}"


def growing(by: float, minutes: int = 120) -> str:
    """A counter."""
    return f"0+{by}x{minutes}"


def late(metric: str, good_le: str, good: float, of: float, minutes: int) -> Series:
    """A histogram of which `good` of each `of` events are below a bound."""
    return {f'{metric}_bucket{{le="{good_le}"}}': growing(good, minutes), f"{metric}_count": growing(of, minutes)}


def ttft(good: float, of: float, minutes: int) -> Series:
    return late("slackwater_ttft_seconds", "2.0", good, of, minutes)


def webhooks(good: float, of: float, minutes: int) -> Series:
    return late("slackwater_notifier_delay_seconds", "60.0", good, of, minutes)


def submits(good: float, of: float, minutes: int) -> Series:
    name = "slackwater_submits_total"
    return {
        f'{name}{{outcome="accepted"}}': growing(good, minutes),
        f'{name}{{outcome="failed"}}': growing(of - good, minutes),
    }


def deadlines(good: float, of: float, minutes: int) -> Series:
    name = "slackwater_steward_batches_ended_total"
    return {
        f'{name}{{state="completed", deadline="yes"}}': growing(good, minutes),
        f'{name}{{state="expired", deadline="yes"}}': growing(of - good, minutes),
        f'{name}{{state="expired", deadline="no"}}': growing(of, minutes),
    }


HOUR, DAY, STEP = 90, 1500, 5  # minutes with some slack; a day is counted every five minutes
BURNS = [
    Case("SlowFirstTokens", ttft(80, 100, HOUR), ttft(95, 100, HOUR), HOUR, "page"),
    Case("SlowFirstTokens", ttft(96, 100, DAY // STEP), ttft(995, 1000, DAY // STEP), DAY, "ticket", STEP),
    Case("WebhooksLate", webhooks(80, 100, HOUR), webhooks(95, 100, HOUR), HOUR, "page"),
    Case("WebhooksLate", webhooks(96, 100, DAY // STEP), webhooks(995, 1000, DAY // STEP), DAY, "ticket", STEP),
    Case("DeadlinesMissed", deadlines(80, 100, HOUR), deadlines(95, 100, HOUR), HOUR, "page"),
    Case("DeadlinesMissed", deadlines(96, 100, DAY // STEP), deadlines(995, 1000, DAY // STEP), DAY, "ticket", STEP),
    Case("SubmitsFail", submits(95, 100, HOUR), submits(995, 1000, HOUR), HOUR, "page"),
    Case("SubmitsFail", submits(996, 1000, DAY // STEP), submits(9995, 10000, DAY // STEP), DAY, "ticket", STEP),
]
# A few bad events are no reason to call anybody, though the share of bad ones is high.
RARE = [
    Case("SlowFirstTokens", ttft(0, 1, HOUR), ttft(0, 0.2, HOUR), HOUR, "page"),
    Case("DeadlinesMissed", deadlines(0, 1, HOUR), deadlines(0, 0.2, HOUR), HOUR, "page"),
]

WORKER = 'engine="engine-0", instance="w:8710", job="slackwater-worker"'
TTFT = "slackwater_worker_caller_ttft_seconds"


def beside(slower_than: str) -> Series:
    """Callers alone take 0.1 s; beside batch work, up to the bound."""
    found = {}
    for beside, bound in (("alone", "0.1"), ("batch", slower_than)):
        for le in ("0.05", "0.1", "0.2", "0.5", "+Inf"):
            reached = float(le.replace("+Inf", "inf")) >= float(bound)
            found[f'{TTFT}_bucket{{beside="{beside}", le="{le}"}}'] = growing(10 if reached else 0)
        found[f'{TTFT}_count{{beside="{beside}"}}'] = growing(10)
    return found


COUNTS = [
    Case(
        "PartDown",
        {'up{instance="a:8700", job="slackwater-api"}': steady(0)},
        {'up{instance="a:8700", job="slackwater-api"}': steady(1), 'up{job="other"}': steady(0)},
    ),
    Case(
        "PartRestarts",
        {f"process_start_time_seconds{{{WORKER}}}": growing(1)},
        {f"process_start_time_seconds{{{WORKER}}}": "1x10 2x30"},
    ),
    Case(
        "DatabaseAway",
        {'slackwater_database_up{instance="a"}': steady(0), 'slackwater_database_up{instance="b"}': steady(0)},
        {'slackwater_database_up{instance="a"}': steady(0), 'slackwater_database_up{instance="b"}': steady(1)},
    ),
    Case("NoSteward", {"slackwater_steward_leads": steady(0)}, {"slackwater_steward_leads": steady(1)}),
    Case(
        "StewardStuck",
        {"slackwater_steward_leading": steady(1), "slackwater_steward_round_seconds_count": steady(500)},
        {
            'slackwater_steward_leading{instance="a"}': steady(1),
            'slackwater_steward_round_seconds_count{instance="a"}': growing(60),
            'slackwater_steward_leading{instance="b"}': steady(0),
            'slackwater_steward_round_seconds_count{instance="b"}': steady(0),
            "slackwater_overdue_batches": steady(0),
        },
    ),
    Case("NoNotifier", {"slackwater_notifier_connected": steady(0)}, {"slackwater_notifier_connected": steady(1)}),
    Case(
        "NoMaintenance",
        {"slackwater_maintenance_connected": steady(0)},
        {"slackwater_maintenance_connected": steady(1)},
    ),
    Case(
        "DutyStuck",
        {
            'slackwater_duty_late_seconds{duty="days"}': steady(90_000),
            'slackwater_duty_late_seconds{duty="ledger"}': steady(0),
        },
        {'slackwater_duty_late_seconds{duty="days"}': steady(80_000)},
    ),
    Case(
        "NoWorker",
        {"slackwater_live_workers": steady(0), "slackwater_open_batches": steady(1)},
        {"slackwater_live_workers": steady(0), "slackwater_open_batches": steady(0)},
    ),
    Case(
        "WorkersLost",
        {"slackwater_steward_workers_lost_total": growing(1)},
        {"slackwater_steward_workers_lost_total": "0x20 1x100"},
    ),
    Case(  # what workers hear decides nothing
        "CallersSlowed",
        beside("0.1") | {"slackwater_callers_slowdown_ratio": steady(1.4)},
        beside("0.2") | {"slackwater_callers_slowdown_ratio": steady(1.2)},
        90,
    ),
    Case(
        "CallersWait",
        {'slackwater_queued_requests{class="sync", model="m"}': steady(3)},
        {'slackwater_queued_requests{class="sync", model="m"}': "_ " + "3 0 " * 30},
    ),
    Case(
        "RelayErrors",
        {
            'slackwater_relay_errors_total{kind="unreachable"}': growing(10),
            "slackwater_request_seconds_count": growing(90),
        },
        {
            'slackwater_relay_errors_total{kind="caller_gone"}': growing(50),
            'slackwater_relay_errors_total{kind="lost"}': growing(1),
            "slackwater_request_seconds_count": growing(90),
        },
    ),
    Case(
        "AnnouncementsFail",
        {
            'slackwater_announcements_total{outcome="failed"}': growing(2),
            'slackwater_announcements_total{outcome="told"}': growing(8),
        },
        {
            'slackwater_announcements_total{outcome="failed"}': growing(1),
            'slackwater_announcements_total{outcome="told"}': growing(99),
        },
    ),
    Case(
        "EngineDown",
        {f'slackwater_worker_reason{{{WORKER}, reason="engine_down"}}': steady(1)},
        {
            f'slackwater_worker_reason{{{WORKER}, reason="engine_down"}}': "1x5 0x30",
            f'slackwater_worker_reason{{{WORKER}, reason="closed_kv"}}': steady(1),
        },
    ),
    Case(
        "TelemetryLost",
        {f'slackwater_worker_reason{{{WORKER}, reason="closed_stale"}}': steady(1)},
        {f'slackwater_worker_reason{{{WORKER}, reason="closed_sync_waiting"}}': steady(1)},
    ),
    Case(
        "PlugInOff",
        {f"slackwater_worker_harvest_tripped{{{WORKER}}}": steady(1)},
        {
            f"slackwater_worker_harvest_tripped{{{WORKER}}}": steady(0),
            f'slackwater_worker_harvest_obstacle{{{WORKER}, code="x"}}': steady(0),
        },
    ),
    Case(
        "QueueStuck",
        {"slackwater_oldest_ready_seconds": steady(7200), "slackwater_worker_results_total": steady(9)},
        {"slackwater_oldest_ready_seconds": steady(7200), "slackwater_worker_results_total": growing(1)},
    ),
    Case("FoldLag", {"slackwater_fold_lag_seconds": steady(90)}, {"slackwater_fold_lag_seconds": "90x4 1x30"}),
    Case(
        "HandoffStuck",
        {"slackwater_handoff_stuck": steady(1)},
        {"slackwater_handoff_stuck": steady(0), "slackwater_handoff_markers": steady(1000)},
    ),
    Case(
        "WorkWaitsForMoney",
        {'slackwater_unreserved_chunks{model="m"}': steady(4)},
        {'slackwater_unreserved_chunks{model="m"}': "4x40 0x80"},
        90,
    ),
    Case(
        "BudgetNearlySpent",
        {'slackwater_budget_spent_ratio{budget="acme/month"}': steady(0.95)},
        {'slackwater_budget_spent_ratio{budget="acme/month"}': steady(0.9)},
    ),
    Case(
        "BudgetOverrun",
        {
            'slackwater_budget_overshoot{budget="acme/month"}': "0x20 500x60",
            'slackwater_budget_overshoot_bound{budget="acme/month"}': "400x20 0x60",
        },
        {
            'slackwater_budget_overshoot{budget="acme/month"}': "0x20 300x60",
            'slackwater_budget_overshoot_bound{budget="acme/month"}': "400x20 0x60",
        },
    ),
    Case(
        "LedgerDrifted",
        {"slackwater_ledger_drift": steady(12)},
        {"slackwater_ledger_drift": "12x20 0x60"},
    ),
    Case(
        "LabelsNearlyUsed",
        {'slackwater_labels_used_ratio{label="acme/variant"}': steady(0.85)},
        {'slackwater_labels_used_ratio{label="acme/variant"}': steady(0.75)},
    ),
    Case(
        "AuditBroken",
        {
            "slackwater_steward_audit_problems_total": steady(0),
            "slackwater_maintenance_audit_problems_total": "0x20 1x60",
        },
        {
            "slackwater_steward_audit_problems_total": steady(0),
            "slackwater_maintenance_audit_problems_total": steady(0),
        },
    ),
    Case(
        "AuditLag",
        {"slackwater_audit_lag_seconds": steady(90)},
        {"slackwater_audit_lag_seconds": "90x3 1x60"},
    ),
    Case(
        "AuditUnsigned",
        {"slackwater_steward_audit_checkpoint_overdue_seconds": steady(1200)},
        {"slackwater_steward_audit_checkpoint_overdue_seconds": steady(55)},
    ),
    Case(
        "AuditUnverified",
        {'slackwater_duty_late_seconds{duty="audit_verify"}': steady(7300)},
        {
            'slackwater_duty_late_seconds{duty="audit_verify"}': steady(100),
            'slackwater_duty_late_seconds{duty="days"}': steady(7300),
        },
    ),
    Case(
        "DeliveriesStuck",
        {"slackwater_oldest_due_delivery_seconds": steady(400)},
        {"slackwater_oldest_due_delivery_seconds": steady(30)},
    ),
    Case(
        "ReceiverFails",
        {"slackwater_failing_endpoints": steady(1)},
        {"slackwater_failing_endpoints": "1x50 0x70"},
        90,
    ),
    Case(
        "DeliveriesGivenUp",
        {'slackwater_notifier_attempts_total{outcome="give_up"}': growing(1)},
        {
            'slackwater_notifier_attempts_total{outcome="give_up"}': steady(7),
            'slackwater_notifier_attempts_total{outcome="retry"}': growing(1),
        },
    ),
    Case(
        "OldSnapshot",
        {"slackwater_oldest_snapshot_seconds": steady(900)},
        {"slackwater_oldest_snapshot_seconds": steady(30)},
    ),
    Case(
        "DeadRows",
        {'slackwater_dead_tuples{table="chunk"}': steady(90_000)},
        {'slackwater_dead_tuples{table="chunk"}': "90000x25 400x60"},
        60,
    ),
    Case(
        "NoPartitions",
        {"slackwater_partitions_ahead_seconds": steady(0)},
        {"slackwater_partitions_ahead_seconds": steady(86_400)},
        60,
    ),
    Case(
        "CachesDrifted",
        {"slackwater_cache_drifts_total": "0x10 1x60"},
        {"slackwater_cache_drifts_total": steady(3)},
    ),
]
CASES = [*BURNS, *COUNTS]
