"""Where blobs outside of the graph may be read from."""

from __future__ import annotations

import click

external_blob_option = click.option(
    "--external-blob-base",
    "external_blob_bases",
    multiple=True,
    metavar="URL",
    help="A folder outside of the graph that rows may name blobs of; may be repeated.",
)
