"""The roles of the console, and what each one may do. Pure.

viewer      sees one account
admin       sees one account, acts on it, and may reveal prompts and answers
operator    sees the installation and acts on it; never sees prompts and answers
auditor     sees the installation; does not act, and never sees prompts and answers
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What somebody who has signed in may see and do."""

    VIEWER = "viewer"
    ADMIN = "admin"
    OPERATOR = "operator"
    AUDITOR = "auditor"

    @property
    def of_account(self) -> bool:
        """Whether the role is for one account. The others are for the installation."""
        return self in {Role.VIEWER, Role.ADMIN}

    @property
    def acts(self) -> bool:
        """Whether the role may change anything."""
        return self in {Role.ADMIN, Role.OPERATOR}

    @property
    def reveals(self) -> bool:
        """Whether the role may see prompts and answers, with a reason that is recorded."""
        return self is Role.ADMIN


@dataclass(frozen=True, slots=True)
class Grant:
    """Who signs in, and as what. `tenant_id`: of a role for one account; None: the installation."""

    subject: str
    role: Role
    tenant_id: int | None = None


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who has signed in. `account`: the name of the account; None: the installation."""

    session_id: int
    subject: str
    role: Role
    tenant_id: int | None
    account: str | None
    signed_in_at: datetime
    expires_at: datetime

    @property
    def scope(self) -> str:
        """What the viewer sees, in two words or fewer."""
        return self.account or "All accounts"
