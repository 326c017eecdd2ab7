"""Policies: actor, action and branches in; decision and reason out."""

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
