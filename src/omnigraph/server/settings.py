"""What a server is started with, checked once."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omnigraph.server.admission import AdmissionLimits
from omnigraph.server.errors import BootRefusedError
from omnigraph.server.limits import QueryLimits

BIND_DEFAULT: Final = "127.0.0.1:8080"


@dataclass(frozen=True)
class Settings:
    """How a server listens, what it serves, and whom it lets in."""

    store: str | None = None
    cluster: str | None = None
    bind: str = BIND_DEFAULT
    policy: Path | None = None
    server_policy: Path | None = None
    queries: tuple[Path, ...] = ()
    unauthenticated: bool = False
    require_all_graphs: bool = False
    workers: int = 1
    tls_cert: Path | None = None
    tls_key: Path | None = None
    cors_origins: frozenset[str] = frozenset()
    allowed_hosts: tuple[str, ...] = ()
    external_blob_bases: tuple[str, ...] = ()
    limits: AdmissionLimits = field(default_factory=AdmissionLimits)
    query_limits: QueryLimits = field(default_factory=QueryLimits)
    environ: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_source()
        self.address  # noqa: B018 - a wrong address is an error at the start
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BootRefusedError("--tls-cert and --tls-key go together", "give both, or neither")

    def _check_source(self) -> None:
        if (self.store is None) == (self.cluster is None):
            raise BootRefusedError(
                "serve needs one source of graphs",
                "give `--cluster DIR|URI`, or `--store URI` for one graph",
            )
        own = (self.policy, self.server_policy, *self.queries, *self.external_blob_bases)
        if self.cluster is not None and any(own):
            raise BootRefusedError(
                "a cluster has policies, stored queries and blob bases of its own",
                "leave out --policy, --server-policy, --queries and --external-blob-base",
            )

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port to listen on."""
        host, colon, port = self.bind.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise BootRefusedError(
                f"'{self.bind}' is no address", "give HOST:PORT, for example 127.0.0.1:8080"
            )
        return host, int(port)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        host = self.address[0]
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def flag_of(environ: Mapping[str, str], name: str) -> bool:
    """Return a switch of the environment: true unless unset, blank, `0` or `false`."""
    return environ.get(name, "").strip().lower() not in ("", "0", "false")
