"""What every command of a cluster takes."""

from __future__ import annotations

import click

config_option = click.option(
    "--config",
    "config_dir",
    metavar="DIR",
    default=".",
    show_default=True,
    help="The folder that has `cluster.yaml`.",
)
"""The option that names the folder of a cluster."""
