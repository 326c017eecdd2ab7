"""Policies: actor, action and branches in; decision and reason out.

Names are loaded when they are first used: most calls need few of them.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_names

if TYPE_CHECKING:
    from omnigraph.policy.actions import ACTIONS, Action, ActionTraits, PolicyKind, Scope, ScopeKey
    from omnigraph.policy.bundle import Bundle, Group, Rule, read_bundle
    from omnigraph.policy.errors import (
        CedarMissingError,
        PolicyDeniedError,
        PolicyEvaluationError,
        PolicyFileError,
        PolicyInvalidError,
    )
    from omnigraph.policy.policy import Decision, Policy

__all__ = [
    "ACTIONS",
    "Action",
    "ActionTraits",
    "Bundle",
    "CedarMissingError",
    "Decision",
    "Group",
    "Policy",
    "PolicyDeniedError",
    "PolicyEvaluationError",
    "PolicyFileError",
    "PolicyInvalidError",
    "PolicyKind",
    "Rule",
    "Scope",
    "ScopeKey",
    "read_bundle",
]

__getattr__ = late_names(
    __name__,
    {
        "omnigraph.policy.actions": "ACTIONS Action ActionTraits PolicyKind Scope ScopeKey",
        "omnigraph.policy.bundle": "Bundle Group Rule read_bundle",
        "omnigraph.policy.errors": (
            "CedarMissingError PolicyDeniedError PolicyEvaluationError PolicyFileError "
            "PolicyInvalidError"
        ),
        "omnigraph.policy.policy": "Decision Policy",
    },
    globals(),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
