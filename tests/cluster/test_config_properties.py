"""A digest follows meaning: never formatting, always a change of a value or of a file."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cluster.config.read import read_config
from omnigraph.cluster.load_desired import load_desired

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True)
SCHEMA = "node Paper { doi: String @key }\n"
POLICY = "version: 1\n"
KEYS = st.just("${KEY}")


def query(name: str) -> str:
    return f"query {name}() {{ match {{ $p: Paper }} return {{ $p.doi }} }}\n"


@st.composite
def providers(draw: st.DrawFn) -> dict[str, object]:
    optional = {"base_url": st.just("https://h/v1"), "model": st.sampled_from(["m", "é"])}
    kinds = st.sampled_from(["openai", "gemini", "openai-compatible"])
    keyed = st.fixed_dictionaries({"kind": kinds, "api_key": KEYS}, optional=optional)
    mock = st.fixed_dictionaries({"kind": st.just("mock")}, optional=optional)
    return draw(st.dictionaries(NAMES, keyed | mock, max_size=3))


@st.composite
def configs(draw: st.DrawFn) -> dict[str, object]:
    """Return a valid configuration; its files are those of `write_files`."""
    declared = draw(providers())
    graphs = {}
    for graph_id in draw(st.lists(NAMES, max_size=3, unique=True)):
        graph: dict[str, object] = {"schema": f"{graph_id}.pg"}
        queries: list[object] = [
            f"{graph_id}/a.gq",
            [f"{graph_id}/a.gq", f"{graph_id}/b.gq"],
            f"{graph_id}/",
            {"a": {"file": f"{graph_id}/a.gq"}},
        ]
        if draw(st.booleans()):
            graph["queries"] = draw(st.sampled_from(queries))
        if declared and draw(st.booleans()):
            graph["embedding_provider"] = draw(st.sampled_from(sorted(declared)))
        if draw(st.booleans()):
            bases = draw(st.lists(st.sampled_from(["s3://a", "s3://b/x"]), min_size=1, unique=True))
            allow = [{"base": base, "scope": "server_safe"} for base in bases]
            graph["external_blobs"] = {"allow": allow}
        graphs[graph_id] = graph
    config: dict[str, object] = {"version": 1, "graphs": graphs}
    if declared:
        config["providers"] = {"embedding": declared}
    if graphs and draw(st.booleans()):
        config["policies"] = {"readers": {"file": "p.yaml", "applies_to": sorted(graphs)}}
    if draw(st.booleans()):
        config["metadata"] = {"name": draw(st.sampled_from(["lab", "1", "yes", "a: b", "é"]))}
    return config


def write_files(folder: Path, config: dict[str, object]) -> None:
    graphs = config["graphs"]
    assert isinstance(graphs, dict)
    (folder / "p.yaml").write_text(POLICY, encoding="utf-8")
    for graph_id in graphs:
        (folder / f"{graph_id}.pg").write_text(SCHEMA, encoding="utf-8")
        (folder / graph_id).mkdir()
        for name in ("a", "b"):
            (folder / graph_id / f"{name}.gq").write_text(query(name), encoding="utf-8")


def digest_of(folder: Path, text: str) -> str:
    (folder / "cluster.yaml").write_text(text, encoding="utf-8")
    desired = load_desired(str(folder))
    assert desired.diagnostics == ()
    assert desired.config_digest is not None
    return desired.config_digest


def shuffled(value: object, chance: random.Random) -> object:
    """Return an equal value whose maps have another order."""
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    chance.shuffle(keys)
    return {key: shuffled(value[key], chance) for key in keys}


def block_style(config: object) -> str:
    return yaml.safe_dump(config, allow_unicode=True, sort_keys=False)


def with_comments(text: str, chance: random.Random) -> str:
    lines = [f"{line}  # note" if chance.random() < 0.5 else line for line in text.splitlines()]
    return "\n".join(f"\n# a comment\n{line}" if chance.random() < 0.3 else line for line in lines)


@given(configs(), st.randoms(use_true_random=False))
def test_formatting_and_comments_mean_nothing(
    config: dict[str, object], chance: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, config)
        other = shuffled(config, chance)
        texts = [
            block_style(config),
            json.dumps(config),
            json.dumps(other, indent=3),
            with_comments(block_style(other), chance),
        ]
        assert len({digest_of(folder, text) for text in texts}) == 1


def used_files(folder: Path) -> Iterator[Path]:
    for resource in load_desired(str(folder)).resources.values():
        if resource.file is not None:
            yield resource.file


@given(configs())
def test_every_change_of_a_file_changes_the_digest(config: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, config)
        text = block_style(config)
        before = digest_of(folder, text)
        for file in set(used_files(folder)):
            original = file.read_bytes()
            file.write_bytes(original + b"\n")
            assert digest_of(folder, text) != before
            file.write_bytes(original)
        assert digest_of(folder, text) == before


@given(configs(), st.sampled_from(["metadata", "storage", "state", "graph", "provider"]))
def test_every_change_of_a_value_changes_the_digest(config: dict[str, object], what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, config)
        (folder / "new.pg").write_text(SCHEMA, encoding="utf-8")
        graphs, services = config["graphs"], config.get("providers", {})
        assert isinstance(graphs, dict)
        assert isinstance(services, dict)
        new_provider = {**services.get("embedding", {}), "new": {"kind": "mock"}}
        changes: dict[str, dict[str, object]] = {
            "metadata": {"metadata": {"name": "another"}},
            "storage": {"storage": "s3://lake"},
            "state": {"state": {"backend": "cluster"}},
            "graph": {"graphs": {**graphs, "new-one": {"schema": "new.pg"}}},
            "provider": {"providers": {"embedding": new_provider}},
        }
        before = digest_of(folder, block_style(config))
        assert digest_of(folder, block_style({**config, **changes[what]})) != before


SCALARS = st.sampled_from([None, True, 0, 1, 2.5, "", "x", "s3://a", "${K}", "graph.a", "\u202e"])
WORDS = st.sampled_from(
    [
        *("version", "metadata", "name", "storage", "state", "lock", "backend", "providers"),
        *("embedding", "kind", "provider", "api_key", "graphs", "schema", "queries", "file"),
        *("external_blobs", "allow", "base", "scope", "policies", "applies_to", "pipelines", "x"),
    ]
)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4)
)


@given(st.dictionaries(WORDS, ANY, max_size=6))
def test_any_document_is_judged_without_a_failure(document: dict[str, object]) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    config, found = read_config(text)
    assert (config is None) == bool(found)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "cluster.yaml").write_text(text, encoding="utf-8")
        desired = load_desired(name)
        assert set(found) <= set(desired.diagnostics)
        assert (desired.config_digest is None) != desired.is_valid
        for each in desired.diagnostics:
            assert "\n" not in str(each)
            assert str(each).isprintable()
