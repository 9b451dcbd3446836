"""Who asks, and what they may: roles, and tenants who do not see each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headrace.errors import HeadraceError


class Role(IntEnum):
    """Each may what those before it may."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


class NotAllowed(HeadraceError):
    """Somebody asks for what they may not have."""

    condition = "NOT_ALLOWED"


#: Between the name of a tenant and that of a query, where neither can have it.
_BETWEEN = "."


@dataclass(frozen=True)
class Caller:
    """Somebody who has shown a token. Without a tenant they belong to the house.

    Queries and views belong to tenants; streams and tables are for all. An administrator of the
    house sees all queries, those of tenants as ``tenant.name``.
    """

    name: str
    role: Role
    tenant: str = ""

    def require(self, role: Role, what: str) -> None:
        if self.role < role:
            raise NotAllowed(
                f"{self.name!r} may not {what}",
                hint=f"it takes a token of the role {role.name.lower()}",
            )

    def require_house(self, what: str) -> None:
        """Only who belongs to no tenant may: what is asked for is about everybody."""
        if self.tenant:
            raise NotAllowed(f"{self.name!r} may not {what}: it is about all tenants")

    @property
    def sees_all(self) -> bool:
        return self.role is Role.ADMIN and not self.tenant

    def inside(self, name: str) -> str:
        """What the engine calls a query that this caller calls by a name.

        >>> Caller("ann", Role.SUBMIT, "acme").inside("hot")
        'acme.hot'
        """
        return f"{self.tenant}{_BETWEEN}{name}" if self.tenant else name

    def sees(self, tenant: str) -> bool:
        return self.sees_all or tenant == self.tenant

    def outside(self, inside: str) -> str:
        """What this caller calls a query of the engine."""
        tenant, between, name = inside.rpartition(_BETWEEN)
        return name if between and tenant == self.tenant else inside


#: Who runs an engine in the process itself, and who may do anything where nobody is asked.
HOUSE = Caller("house", Role.ADMIN)
