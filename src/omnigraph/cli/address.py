"""Which graph a command means: from flags, a profile or the operator's defaults to one root.

1. One explicit address wins: a URI, `--store`, `--server` or `--cluster`. Two are an error.
2. Then `--profile`, else `$OMNIGRAPH_PROFILE`.
3. Then the operator's defaults: a server with its graph, else a store.
4. Without any of them no graph is addressed, and the message explains how to address one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from omnigraph.cli.capabilities import rule_of
from omnigraph.cli.config.credentials import token_of
from omnigraph.cli.config.operator_config import OperatorConfig, ScopeKind, read_operator_config
from omnigraph.cli.options.flags import GlobalFlags, flags, note_scope, words_of
from omnigraph.cli.options.graph_argument import graph_argument
from omnigraph.cli.output.output import Output
from omnigraph.cli.output.streams import say
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.texts import redacted

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

Command = TypeVar("Command", bound=Callable[..., Any])
_OPERATOR: Final = "omnigraph.operator"
_TARGET: Final = "omnigraph.target"
_SERVED: Final = "omnigraph.served"
_ARGUMENT: Final = "argument"
_HOW: Final = (
    "give a URI, `--store URI`, `--server NAME|URL` or `--profile NAME`, or set defaults.store"
)


class NoGraphAddressedError(InvalidInputError):
    """A command needs a graph and was given none."""

    code = "OG-NO-GRAPH"
    hint = _HOW
    template = f"no graph addressed: {_HOW}"


class ConflictingAddressError(InvalidInputError):
    """The parts of an address do not go together."""

    code = "OG-ADDRESS"
    template = "{problem}"
    problem: str


class ServedActorError(InvalidInputError):
    """A write on a server was given an actor, which the server takes from the token."""

    code = "OG-SERVED-ACTOR"
    hint = "leave out --as; `omnigraph login NAME` stores another token"
    template = "--as is not allowed on a served write: the server takes the actor from the token"


@dataclass(frozen=True)
class Scope:
    """Where graphs are stored, and possibly which one."""

    kind: ScopeKind
    target: str
    graph: str | None = None


def graph_address(command: Command) -> Command:
    """Add the root of one graph to a command: as its first argument `uri`, or as `--uri`."""
    return _add_address(command, graph_argument())


def graph_address_in_flags(command: Command) -> Command:
    """Add the root of one graph to a command that takes its address from the flags."""
    return _add_address(command, graph_argument(expose_value=False, callback=_note_argument))


def _add_address(command: Command, argument: click.Argument) -> Command:
    """Add the argument before those that the command has."""
    command = click.option(
        "--uri",
        "_uri",
        metavar="URI",
        help="Address one graph by its root.",
        expose_value=False,
        callback=note_scope,
    )(command)
    found: list[click.Parameter] = vars(command).setdefault("__click_params__", [])
    found.append(argument)
    return command


def _note_argument(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.find_root().ensure_object(GlobalFlags).scope[_ARGUMENT] = value


def operator() -> OperatorConfig:
    """Return the operator's settings, read once per run."""
    meta = click.get_current_context().find_root().meta
    if _OPERATOR not in meta:
        meta[_OPERATOR] = read_operator_config(_warn)
    settings: OperatorConfig = meta[_OPERATOR]
    return settings


def _warn(text: str) -> None:
    say(f"warning: {text}", err=True)


def acting() -> str | None:
    """Return the actor to record: `--as`, else the operator's own name.

    A server takes it from the token.
    """
    given = flags().get("as")
    if click.get_current_context().find_root().meta.get(_SERVED):
        if given is not None:
            raise ServedActorError
        return None
    return operator().actor if given is None else given


def storage_options() -> dict[str, str] | None:
    """Return the settings of the storage that were given, or None."""
    return flags().storage_options or None


def has_scope() -> bool:
    """Whether a flag addresses a graph, so that no argument has to."""
    return any(flags().get(kind) for kind in ("uri", "store", "server", "profile"))


def resolve_scope(uri: str | None = None) -> Scope:
    """Return the address that the flags, a profile or the defaults name."""
    given = flags()
    explicit = {"URI": uri or given.get(_ARGUMENT)} | {
        f"--{kind}": given.get(kind) for kind in ("uri", "store", "server", "cluster")
    }
    named = {flag: value for flag, value in explicit.items() if value}
    if len(named) > 1:
        shown = " and ".join(f"{flag} {value}" for flag, value in named.items())
        raise ConflictingAddressError(f"{shown} are mutually exclusive: give one of them")
    graph = given.get("graph")
    if named:
        [(flag, value)] = named.items()
        return _explicit(flag, value, graph)
    profile = given.get("profile") or os.environ.get("OMNIGRAPH_PROFILE")
    if profile:
        found = operator().profile(profile)
        return _checked(
            Scope(found.kind, _looked_up(found.kind, found.target), graph or found.default_graph)
        )
    return _checked(_default(graph))


def resolve_address(uri: str | None = None) -> str:
    """Return the root of the addressed graph, or the URL of a served one."""
    return _resolved(uri).target


def is_served(uri: str | None = None) -> bool:
    """Whether the addressed graph is that of a server."""
    return resolve_scope(uri).kind == "server"


def refuse_served_spark(uri: str | None, *, on_spark: bool) -> None:
    """Raise a usage error where Spark is asked for and a server would have to run it."""
    if on_spark and is_served(uri):
        raise click.UsageError("--engine spark is for a graph that is opened directly")


def _resolved(uri: str | None) -> Scope:
    """Return where the addressed graph is: in storage, or below the URL of a server."""
    meta = click.get_current_context().find_root().meta
    if _TARGET not in meta:
        meta[_TARGET] = _find_target(resolve_scope(uri))
    found: Scope = meta[_TARGET]
    return found


def _find_target(scope: Scope) -> Scope:
    command, is_direct = _running()
    if scope.kind == "server":
        if is_direct:
            raise ConflictingAddressError(
                f"`{command}` needs direct storage access and {scope.target} is a server:"
                " give the root of the graph, as a URI or with --store"
            )
        return replace(scope, target=_served_graph(scope))
    if scope.kind == "cluster":
        if not is_direct:
            raise ConflictingAddressError(
                f"--cluster is not valid for graph data commands: `{command}` wants a URI,"
                " --store or --server"
            )
        return Scope("store", _applied_graph(scope))
    return scope


def _applied_graph(scope: Scope) -> str:
    """Return the storage URI of a graph of a cluster; without an id, of the only one."""
    from omnigraph.cluster.applied import GraphNotAppliedError  # noqa: PLC0415 a heavy room
    from omnigraph.cluster.read_applied import applied_graph_uris  # noqa: PLC0415

    applied = applied_graph_uris(scope.target, storage_options())
    if scope.graph is not None:
        if scope.graph not in applied:
            raise GraphNotAppliedError(scope.graph, redacted(scope.target), tuple(applied))
        return applied[scope.graph]
    if not applied:
        raise ConflictingAddressError(
            f"no graph is applied in cluster {redacted(scope.target)}:"
            " declare one, then `omnigraph cluster apply`"
        )
    if len(applied) > 1:
        raise ConflictingAddressError(
            f"cluster {redacted(scope.target)} has {len(applied)} applied graphs"
            f" ({', '.join(applied)}): pick one with `--graph <id>`"
        )
    [uri] = applied.values()
    return uri


def resolve_cluster() -> Scope:
    """Return the cluster that a command works on, and possibly the graph in it."""
    words = words_of(click.get_current_context())
    remedy = "give `--cluster <dir|uri>`, or a profile with a cluster"
    try:
        scope = resolve_scope()
    except NoGraphAddressedError as error:
        raise ConflictingAddressError(f"`{words[0]}` needs a cluster: {remedy}") from error
    if scope.kind != "cluster":
        raise ConflictingAddressError(
            f"`{words[0]}` needs a cluster and {redacted(scope.target)} is a {scope.kind}: {remedy}"
        )
    return scope


def _served_graph(scope: Scope) -> str:
    """Return the URL of the graph; without an id the server is asked which ones it has."""
    from omnigraph.client import graph_url, served_graphs  # noqa: PLC0415 loads Lance

    if scope.graph is not None:
        return graph_url(scope.target, scope.graph)
    try:
        found = served_graphs(scope.target, token=server_token(scope.target))
    except OmnigraphError:
        # A server may refuse to list its graphs, and its address may be that of a graph.
        return scope.target
    if found:
        names = ", ".join(one["graph_id"] for one in found)
        raise ConflictingAddressError(f"{scope.target} serves {names}: pick one with `--graph ID`")
    return scope.target


def server_address(value: str) -> str:
    """Return the URL of a server, which is given by name or as it is."""
    return _looked_up("server", value)


def server_token(url: str) -> str | None:
    """Return the token for a server, from the environment or the file of credentials."""
    return token_of(url, operator().servers, os.environ)


def open_graph(uri: str | None = None, *, read_only: bool) -> Graph | RemoteGraph:
    """Open the addressed graph; closing it at the end of the command finishes its maintenance."""
    from omnigraph.graph import Graph, OpenMode  # noqa: PLC0415 loads Lance

    scope = _resolved(uri)
    context = click.get_current_context()
    graph: Graph | RemoteGraph
    if scope.kind == "server":
        from omnigraph.client import RemoteGraph  # noqa: PLC0415 an optional library

        context.find_root().meta[_SERVED] = True
        if not read_only:
            acting()
        graph = RemoteGraph(scope.target, token=server_token(scope.target))
    else:
        mode = OpenMode.READ_ONLY if read_only else OpenMode.READ_WRITE
        words = " ".join(words_of(context))
        graph = Graph.open(scope.target, mode=mode, storage_options=storage_options()).with_job(
            words or None, namespace="cli"
        )
    context.call_on_close(graph.close)
    return graph


def open_target(
    uri: str | None, *, as_json: bool, read_only: bool = False
) -> tuple[Graph | RemoteGraph, Output]:
    """Open the graph that a command writes to, and print on stderr which one it is."""
    graph, out = open_graph(uri, read_only=read_only), Output(as_json=as_json)
    out.write_target(graph.uri)
    return graph, out


def _running() -> tuple[str, bool]:
    """Return the first word of the running command, and whether it needs direct storage access."""
    words = words_of(click.get_current_context())
    rule = rule_of(words)
    return words[0], rule is not None and "server" not in rule.flags


def _explicit(flag: str, value: str, graph: str | None) -> Scope:
    if flag == "--server":
        return Scope("server", _looked_up("server", value), graph)
    if flag == "--cluster":
        return Scope("cluster", _looked_up("cluster", value), graph)
    if graph is not None:
        raise ConflictingAddressError(
            f"--graph {graph} does not apply: {value} is already a single graph: leave out --graph"
        )
    if value.startswith(("http://", "https://")):
        command, is_direct = _running()
        if is_direct:
            raise ConflictingAddressError(
                f"{value} is a server and `{command}` needs direct storage access:"
                " give the root of the graph"
            )
        raise ConflictingAddressError(f"{value} is a server: address it with `--server {value}`")
    return Scope("store", value)


def _looked_up(kind: ScopeKind, value: str) -> str:
    """Return where a server or cluster of the operator's file is; anything else is an address."""
    if kind == "cluster":
        return operator().clusters.get(value, value)
    if kind == "store":
        return value
    if "://" in value:
        if not value.startswith(("http://", "https://")):
            raise ConflictingAddressError(
                f"--server {value} is not a server: give a name or an http(s) URL;"
                f" `--store {value}` opens storage"
            )
        return value.rstrip("/")
    servers = operator().servers
    if value not in servers:
        known = ", ".join(sorted(servers)) or "none"
        raise ConflictingAddressError(
            f"unknown server '{value}' (defined: {known}): add it to {operator().path},"
            " or give its URL"
        )
    return servers[value].rstrip("/")


def _default(graph: str | None) -> Scope:
    settings = operator()
    if settings.default_server:
        return Scope(
            "server",
            _looked_up("server", settings.default_server),
            graph or settings.default_graph,
        )
    if settings.default_store:
        return Scope("store", settings.default_store, graph)
    raise NoGraphAddressedError


def _checked(scope: Scope) -> Scope:
    if scope.kind == "store" and scope.graph is not None:
        raise ConflictingAddressError(
            f"graph '{scope.graph}' does not apply to a store scope: {scope.target} is one graph;"
            " leave the graph away"
        )
    return scope
