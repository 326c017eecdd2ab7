"""Errors of policies."""

from __future__ import annotations

from omnigraph.errors import DeniedError, InvalidInputError, OmnigraphError, UnavailableError


class PolicyInvalidError(InvalidInputError):
    """A policy bundle, or a file of policy tests, is wrong."""

    code = "OG-POLICY-INVALID"
    hint = "fix the file; docs/reference/policy.md has the format"
    reason: str
    what: str = "policy"
    source: str | None = None

    def _message(self) -> str:
        name = self.what if self.source is None else f"{self.what} '{self.source}'"
        return f"{name} is invalid: {self.reason}"


class PolicyFileError(InvalidInputError):
    """A file of a policy cannot be read."""

    code = "OG-POLICY-FILE"
    hint = "check the path and its permissions"
    template = "policy file '{path}' cannot be read: {reason}"
    path: str
    reason: str


class PolicyDeniedError(DeniedError):
    """The policy does not permit the action, or could not be evaluated for it."""

    code = "OG-POLICY-DENIED"
    hint = "ask for a rule that permits it, or act as someone who may"
    template = "{message}"
    message: str


class PolicyEvaluationError(OmnigraphError):
    """The policy could not be evaluated; this is not a denial."""

    code = "OG-POLICY-EVALUATION"
    hint = "this is a defect of omnigraph: report it with the bundle"
    template = "policy evaluation failed: {reason}"
    reason: str


class CedarMissingError(UnavailableError):
    """The library that evaluates policies is not installed."""

    code = "OG-NO-CEDAR"
    hint = "pip install 'omnigraph[server]'"
    template = "a policy needs cedarpy: pip install 'omnigraph[server]'"
