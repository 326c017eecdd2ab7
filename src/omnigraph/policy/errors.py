"""Errors of policies."""

from __future__ import annotations

from omnigraph.errors import DeniedError, InvalidInputError, OmnigraphError, UnavailableError


class PolicyInvalidError(InvalidInputError):
    """A policy bundle, or a file of policy tests, is wrong."""

    code = "OG-POLICY-INVALID"
    hint = "fix the file; docs/reference/policy.md has the format"

    def __init__(self, reason: str, *, what: str = "policy", source: str | None = None) -> None:
        self.reason = reason
        self.what = what
        self.source = source
        name = what if source is None else f"{what} '{source}'"
        super().__init__(f"{name} is invalid: {reason}")


class PolicyFileError(InvalidInputError):
    """A file of a policy cannot be read."""

    code = "OG-POLICY-FILE"
    hint = "check the path and its permissions"

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"policy file '{path}' cannot be read: {reason}")


class PolicyDeniedError(DeniedError):
    """The policy does not permit the action, or could not be evaluated for it."""

    code = "OG-POLICY-DENIED"
    hint = "ask for a rule that permits it, or act as someone who may"

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class PolicyEvaluationError(OmnigraphError):
    """The policy could not be evaluated; this is not a denial."""

    code = "OG-POLICY-EVALUATION"
    hint = "this is a defect of omnigraph: report it with the bundle"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"policy evaluation failed: {reason}")


class CedarMissingError(UnavailableError):
    """The library that evaluates policies is not installed."""

    code = "OG-NO-CEDAR"
    hint = "pip install 'omnigraph[server]'"

    def __init__(self) -> None:
        super().__init__("a policy needs cedarpy: pip install 'omnigraph[server]'")
