"""Which duties there are, how often each is done, and for how long it may run. Pure."""

from dataclasses import dataclass

RETRY_SECONDS = 600.0  # the longest time until a duty that was lost or has failed is asked for again
STUCK_SECONDS = 86_400.0  # a duty whose success has been due for so long needs somebody


@dataclass(frozen=True, slots=True)
class Duty:
    """One duty. `every_seconds`: from its end to the next begin. A run that takes `limit_seconds` is ended as a failure; each
    duty goes on next time where it was ended, but for `audit_verify`. `about`: what it does, after "it".
    """

    name: str
    every_seconds: float
    limit_seconds: float
    about: str

    @property
    def retry_seconds(self) -> float:
        """How long after it was asked for, or has failed, it is asked for again."""
        return min(float(self.every_seconds), RETRY_SECONDS)


ACCOUNTS = "accounts"

DUTIES = (
    Duty("fair_order", 120, 120, "counts what the fair order remembers"),
    Duty("ledger", 600, 900, "compares ledger and queue"),
    Duty("usage", 600, 900, "adds up the usage of old days"),
    Duty("lengths", 60, 120, "learns how long answers are"),
    Duty("history", 600, 900, "shortens the history of engines, latencies and changes"),
    Duty("engines", 600, 300, "forgets engines that are gone"),
    Duty("conversations", 600, 1800, "deletes old conversations"),
    Duty("freeze", 600, 7200, "vacuums the tables of the last days"),
    Duty("objects", 600, 7200, "removes files, uploads and objects that nobody needs"),
    Duty("shredded", 600, 7200, "removes the objects of batches whose contents were deleted"),
    Duty("days", 600, 7200, "drops days whose retention is over"),
    Duty(ACCOUNTS, 60, 7200, "deletes what closed accounts have"),
    Duty("audit_sign", 60, 900, "signs checkpoints of the audit log"),
    Duty("audit_cut", 3600, 1800, "cuts old rows off the audit log"),
    Duty("audit_verify", 86_400, 21_600, "checks the whole audit log"),
)
BY_NAME = {duty.name: duty for duty in DUTIES}
