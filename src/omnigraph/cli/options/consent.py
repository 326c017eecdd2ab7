"""Asking before something is destroyed that is not on this machine."""

from __future__ import annotations

import sys

import click

from omnigraph.cli.options.flags import flags
from omnigraph.errors import InvalidInputError


class ConsentMissingError(InvalidInputError):
    """A destructive command on remote storage was not confirmed."""

    code = "OG-CONSENT"
    hint = "`omnigraph {command} … --yes` consents"
    template = "refusing destructive `{command}` on {uri} without --yes"
    command: str
    uri: str


def require_consent(command: str, uri: str, *, as_json: bool) -> None:
    """Ask before a destructive command touches remote storage; local targets need no consent."""
    is_local = "://" not in uri or uri.startswith("file://")
    if is_local or flags().yes:
        return
    if as_json or not sys.stdin.isatty():
        raise ConsentMissingError(command, uri)
    answer = click.prompt(f"{command} on {uri}: type yes to proceed", default="no", err=True)
    if answer.strip().lower() not in ("yes", "y"):
        raise ConsentMissingError(command, uri)
