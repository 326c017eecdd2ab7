"""`omnigraph serve`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from omnigraph.cli.options.blobs import external_blob_option
from omnigraph.cli.options.flags import ScopedCommand, flags

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("serve", cls=ScopedCommand)
@click.option(
    "--bind",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 lets the system choose.",
)
@click.option(
    "--require-all-graphs",
    is_flag=True,
    help="Do not start if one graph of the cluster cannot be served.",
)
@click.option("--policy", type=_FILE, help="The policy of the graph of --store.")
@click.option("--server-policy", type=_FILE, help="The policy of the server: who may list graphs.")
@click.option(
    "--queries",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A file of stored queries, or a folder of them; repeatable.",
)
@click.option(
    "--unauthenticated", is_flag=True, help="Serve without tokens: everybody may do everything."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=64),
    default=1,
    show_default=True,
    help="How many processes answer.",
)
@click.option("--tls-cert", type=_FILE, help="The certificate chain, for HTTPS.")
@click.option("--tls-key", type=_FILE, help="The private key, for HTTPS.")
@click.option(
    "--cors-origin", "cors_origins", multiple=True, help="A web origin that may call; repeatable."
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    help="A further name of a server without tokens; repeatable.",
)
@external_blob_option
def command(
    bind: str,
    require_all_graphs: bool,
    policy: Path | None,
    server_policy: Path | None,
    queries: tuple[Path, ...],
    unauthenticated: bool,
    workers: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    cors_origins: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    external_blob_bases: tuple[str, ...],
) -> None:
    """Serve the graphs of --cluster, or the one of --store, over HTTP, until interrupted.

    The address is printed as `OMNIGRAPH_LISTEN_ADDR=HOST:PORT`. Tokens come from the environment.
    A new applied revision of the cluster is served as soon as it is there. Policies and stored
    queries of --store are read again when their files change. SIGHUP looks at once.
    """
    # The web framework is an extra, and loads slowly.
    from omnigraph.server.admission import AdmissionLimits  # noqa: PLC0415
    from omnigraph.server.limits import QueryLimits  # noqa: PLC0415
    from omnigraph.server.logs import log_to_stderr  # noqa: PLC0415
    from omnigraph.server.serve import serve  # noqa: PLC0415
    from omnigraph.server.settings import Settings, flag_of  # noqa: PLC0415

    given = flags()
    store, cluster = given.get("store"), given.get("cluster")
    if (store is None) == (cluster is None):
        raise click.UsageError(
            "serve needs one of --cluster and --store: give `--cluster DIR|URI`,"
            " or `--store URI` for one graph"
        )
    log_to_stderr(os.environ)
    serve(
        Settings(
            store=store,
            cluster=cluster,
            bind=bind,
            require_all_graphs=require_all_graphs
            or flag_of(os.environ, "OMNIGRAPH_REQUIRE_ALL_GRAPHS"),
            policy=policy,
            server_policy=server_policy,
            queries=queries,
            unauthenticated=unauthenticated or flag_of(os.environ, "OMNIGRAPH_UNAUTHENTICATED"),
            workers=workers,
            tls_cert=tls_cert,
            tls_key=tls_key,
            cors_origins=frozenset(cors_origins),
            allowed_hosts=allowed_hosts,
            external_blob_bases=external_blob_bases,
            limits=AdmissionLimits.of_environment(os.environ),
            query_limits=QueryLimits.of_environment(os.environ),
            environ=dict(os.environ),
        )
    )
