"""`omnigraph embed`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import acting, graph_address, open_graph
from omnigraph.cli.options.commit_note import commit_options
from omnigraph.cli.options.flags import ScopedCommand, flags
from omnigraph.cli.output.output import Output, json_option
from omnigraph.texts import read_json

if TYPE_CHECKING:
    from omnigraph.graph import EmbedFileRequest

_DEFAULT_OUTPUT = "./build/seed.embedded.jsonl"
_FILE = click.Path(path_type=Path)


@click.command("embed", cls=ScopedCommand)
@graph_address
@click.option("--seed", metavar="MANIFEST", type=_FILE, help="A YAML file that names the others.")
@click.option("--input", "source", metavar="FILE", type=_FILE, help="Graph records to read.")
@click.option("--output", metavar="FILE", type=_FILE, help="Where to write the records.")
@click.option("--spec", metavar="FILE", type=_FILE, help="What to embed, as JSON.")
@click.option("--reembed-all", is_flag=True, help="Make every vector again.")
@click.option("--clean", is_flag=True, help="Remove vectors instead.")
@click.option("--type", "types", metavar="T", multiple=True, help="Only records of this type.")
@click.option(
    "--select",
    "selectors",
    metavar="[T:]FIELD=VALUE",
    multiple=True,
    help="Only records with this value; one of several is enough.",
)
@click.option("--branch", metavar="B", help="The branch of a graph; main by default.")
@commit_options
@json_option
def command(
    uri: str | None,
    seed: Path | None,
    source: Path | None,
    output: Path | None,
    spec: Path | None,
    reembed_all: bool,
    clean: bool,
    types: tuple[str, ...],
    selectors: tuple[str, ...],
    branch: str | None,
    message: str | None,
    properties: dict[str, str],
    as_json: bool,
) -> None:
    """Make the vectors of a graph, or those of a file of records."""
    out = Output(as_json=as_json)
    files = {"--seed": seed, "--input": source, "--output": output, "--spec": spec}
    if clean and reembed_all:
        raise click.UsageError("--clean and --reembed-all are mutually exclusive")
    named = {"URI": uri} | {f"--{flag}": flags().get(flag) for flag in ("uri", "store")}
    address = next((name for name, value in named.items() if value is not None), None)
    if address is not None:
        _refuse(
            address,
            {**files, "--clean": clean or None, "--select": selectors or None},
        )
        options = {"branch": branch, "message": message, "properties": properties}
        _embed_graph(out, uri, types, options, reembed_all=reembed_all)
        return
    _refuse(
        "a file",
        {"--branch": branch, "--message": message, "--property": properties or None},
    )
    if seed is not None:
        _refuse("--seed", {name: files[name] for name in ("--input", "--output", "--spec")})
        source, output, spec_value, where = _read_manifest(seed)
    elif source is not None and output is not None and spec is not None:
        spec_value, where = _decoded(spec), str(spec)
    else:
        raise click.UsageError(
            "give --seed MANIFEST, or --input, --output and --spec, or the URI of a graph"
        )
    from omnigraph.graph import EmbedFileRequest, EmbedSpec, Selector  # noqa: PLC0415 loads Lance

    request = EmbedFileRequest(
        source,
        output,
        EmbedSpec.of(spec_value, where),
        reembed_all=reembed_all,
        clean=clean,
        types=types,
        selectors=tuple(Selector.parse(text) for text in selectors),
    )
    _embed_file(out, request)


def _refuse(what: str, others: dict[str, Any]) -> None:
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise click.UsageError(f"{given[0]} does not go with {what}")


def _embed_graph(
    out: Output,
    uri: str | None,
    types: tuple[str, ...],
    options: dict[str, Any],
    *,
    reembed_all: bool,
) -> None:
    with open_graph(uri, read_only=False) as graph:
        out.write_target(graph.uri)
        result = graph.embed(
            types, mode="all" if reembed_all else "missing", actor_id=acting(), **options
        )
        counts = ", ".join(f"{count} {name}" for name, count in result.rows) or "no types"
        text = f"embedded on {result.branch}: {counts} ({result.texts_sent} texts sent)"
        out.result(text, {"uri": graph.uri, **result.to_json()})


def _embed_file(out: Output, request: EmbedFileRequest) -> None:
    from omnigraph.graph import embed_records  # noqa: PLC0415 loads Lance

    result = embed_records(request)
    model = f"model '{result.model}'" if result.model else "no model"
    done = f"embedded {result.embedded_records} with {model}"
    if request.clean:
        done = f"cleaned {result.cleaned_records}"
    text = f"{result.output}: {result.records} records, {result.selected_records} selected, {done}"
    out.result(text, asdict(result))


def _read_manifest(path: Path) -> tuple[Path, Path, object, str]:
    """Return input, output and spec of a manifest; its paths are relative to its folder."""
    found = _decoded(path)
    manifest = found if isinstance(found, dict) else {}
    sources, artifacts = _part(manifest, "sources"), _part(manifest, "artifacts")
    source = sources.get("raw_seed") or _part(manifest, "seed").get("data")
    if not isinstance(source, str):
        raise click.UsageError(f"{path} names no records: set sources.raw_seed")
    output = artifacts.get("embedded_seed") or _DEFAULT_OUTPUT
    folder = path.parent
    return folder / source, folder / str(output), manifest.get("embeddings"), f"{path}: embeddings"


def _part(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    part = manifest.get(name)
    return part if isinstance(part, dict) else {}


def _decoded(path: Path) -> object:
    """Read a file of JSON or YAML."""
    import yaml  # noqa: PLC0415 - only this command and the operator's settings need it

    try:
        text = path.read_text(encoding="utf-8")
        return read_json(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise click.UsageError(f"{path} cannot be understood: it nests too deep") from None
    except (ValueError, yaml.YAMLError) as error:
        raise click.UsageError(f"{path} cannot be understood: {error}") from error
