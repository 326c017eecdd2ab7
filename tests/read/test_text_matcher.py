"""Full text over rows with an index, without one, and with an index over a part of them.

`Whole` has an index over all rows, `Part` over the first half, `Bare` has none; all three hold the
same texts. A small model says which rows match: it only borrows the way a text is taken apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import lance
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.graph import Graph
from omnigraph.maintenance import build_indexes as indices
from omnigraph.read.access.text_matcher import TERMS_MAX, TextQueryError
from omnigraph.store.text_index import ANALYSIS_PARAMETERS

SCHEMA = """\
node Whole { key: String @key  text: String? @index }
node Part  { key: String @key  text: String? @index }
node Bare  { key: String @key  text: String? }
"""
TYPES = ("Whole", "Part", "Bare")
WORDS = (
    *("red", "Red", "ship", "ships", "shipping", "sail", "sailing", "vision", "mission", "visoin"),
    *("introduction", "introduce", "introduc", "café", "CAFE", "naïve", "straße", "Ωmega", "ﬁsh"),
    *("the", "of", "not", "a", "x_y", "don't", "e-mail", "12.5", "v2", "é", "a" * 45, "b" * 39),
)
ROWS = 40
SEEDS = (1, 2)


# -- the model ------------------------------------------------------------------------------------


Tokens = list[tuple[str, int]]


def tokens_of(text: str) -> Tokens:
    found = lance.tokenize(text, **dict(ANALYSIS_PARAMETERS))  # type: ignore[arg-type]  # one dict for all
    return [(token.text, token.position) for token in found]


def has_any(text: Tokens, query: Tokens) -> bool:
    return bool({word for word, _ in text} & {word for word, _ in query})


def has_phrase(text: Tokens, query: Tokens) -> bool:
    places = set(text)
    starts = [place for _, place in text]
    return bool(query) and any(
        all((word, start + place - query[0][1]) in places for word, place in query)
        for start in starts
    )


def has_similar(text: Tokens, query: Tokens, edits: int) -> bool:
    return any(distance(word, wanted) <= edits for word, _ in text for wanted, _ in query)


def distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, start=1):
        before, row = row, [number]
        for place, other in enumerate(second, start=1):
            row.append(min(before[place - 1] + (letter != other), before[place] + 1, row[-1] + 1))
    return row[-1]


# -- graphs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """The texts of one graph, by key."""

    graph: Graph
    texts: dict[str, str | None]

    def keys(self, type_name: str, clause: str, params: dict[str, Any]) -> set[str]:
        head = f"query q($t: String, $e: I64) {{ match {{ $d: {type_name}  {clause} }}"
        rows = self.graph.query(f"{head} return {{ $d.key as key }} }}", params=params)
        return {row["key"] for row in rows.json_rows()}

    def scores(self, type_name: str, query: str) -> dict[str, float]:
        text = (
            f"query q($t: String) {{ match {{ $d: {type_name} }}"
            " return { $d.key as key, bm25($d.text, $t) as score } order { score } }"
        )
        rows = self.graph.query(text, params={"t": query}).json_rows()
        assert [row["score"] for row in rows] == sorted((r["score"] for r in rows), reverse=True)
        return {row["key"]: row["score"] for row in rows}

    def model(self, matches: Any, query: str, *more: int) -> set[str]:
        wanted = tokens_of(query)
        return {
            key
            for key, text in self.texts.items()
            if text is not None and matches(tokens_of(text), wanted, *more)
        }


def lines(type_name: str, texts: dict[str, str | None], keys: Sequence[str]) -> bytes:
    rows = [{"type": type_name, "data": {"key": key, "text": texts[key]}} for key in keys]
    return "\n".join(json.dumps(row) for row in rows).encode()


def make_corpus(root: Path, seed: int) -> Corpus:
    random = Random(seed)
    texts: dict[str, str | None] = {
        f"k{number}": " ".join(random.choices(WORDS, k=random.randint(0, 6)))
        for number in range(ROWS)
    }
    texts["k3"] = None
    keys = list(texts)
    graph = Graph.init(root / f"g{seed}", SCHEMA, durability="process", auto_optimize=False)
    graph.load(lines("Whole", texts, keys), mode="append")
    graph.load(lines("Bare", texts, keys), mode="append")
    graph.load(lines("Part", texts, keys[: ROWS // 2]), mode="append")
    graph.ensure_indices()
    # Two uncovered fragments, and a covered fragment with a row that is gone and one that changed.
    graph.load(lines("Part", texts, keys[ROWS // 2 : -5]), mode="append")
    graph.load(lines("Part", texts, keys[-5:]), mode="append")
    graph.mutate('query q() { update Part set { text: "moved" } where key = "k1" }')
    graph.mutate('query q() { delete Part where key = "k2" }')
    graph.load(lines("Part", texts, ["k1", "k2"]), mode="merge")
    return Corpus(graph, texts)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Corpus]]:
    made = [make_corpus(tmp_path_factory.mktemp("texts"), seed) for seed in SEEDS]
    yield made
    for corpus in made:
        corpus.graph.close()


def test_the_index_covers_what_the_names_say(corpora: list[Corpus]) -> None:
    snapshot = corpora[0].graph.snapshot()
    kinds = {
        name: [i.kind for i in snapshot.open(f"node:{name}").indexes() if "text" in i.columns]
        for name in TYPES
    }
    assert "INVERTED" in kinds["Whole"]
    assert "INVERTED" in kinds["Part"]
    assert kinds["Bare"] == []
    part = snapshot.open("node:Part")
    covered = {n for i in part.indexes() for s in i.segments for n in s.fragment_ids}
    assert len({fragment.fragment_id for fragment in part.fragments()} - covered) >= 2


misspelled = st.builds(
    lambda word, place, letter: word[:place] + letter + word[place + 1 :],
    *(st.sampled_from(WORDS), st.integers(0, 6), st.sampled_from("aexzé ")),
)
texts = st.lists(st.sampled_from(WORDS) | misspelled, max_size=4).map(" ".join)


@given(query=texts, chosen=st.integers(0, len(SEEDS) - 1), edits=st.integers(0, 4))
def test_texts_match_alike_whatever_the_index_covers(
    corpora: list[Corpus], query: str, chosen: int, edits: int
) -> None:
    corpus = corpora[chosen]
    expected = {
        "search($d.text, $t)": corpus.model(has_any, query),
        "match_text($d.text, $t)": corpus.model(has_phrase, query),
        "fuzzy($d.text, $t, $e)": corpus.model(has_similar, query, edits),
        "not { search($d.text, $t) }": set(corpus.texts) - corpus.model(has_any, query),
    }
    for clause, keys in expected.items():
        for type_name in TYPES:
            found = corpus.keys(type_name, clause, {"t": query, "e": edits})
            assert found == keys, (clause, type_name, query)


@given(query=texts, chosen=st.integers(0, len(SEEDS) - 1))
def test_scores_are_the_same_without_an_index_and_near_with_an_index_over_a_part(
    corpora: list[Corpus], query: str, chosen: int
) -> None:
    corpus = corpora[chosen]
    whole, part, bare = (corpus.scores(type_name, query) for type_name in TYPES)
    assert whole.keys() == part.keys() == bare.keys() == corpus.model(has_any, query)
    for key, score in whole.items():
        assert bare[key] == pytest.approx(score, rel=1e-5)
        assert part[key] == pytest.approx(score, rel=0.5)


def test_an_index_over_few_rows_does_not_rank_the_others(tmp_path: Path) -> None:
    """The statistics of two rows say nothing about the next hundred."""
    texts: dict[str, str | None] = {"k0": "red ship", "k1": "red sail"}
    texts |= {f"k{number}": "red red red" if number == 50 else "blue" for number in range(2, 102)}
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False)
    graph.load(lines("Part", texts, ["k0", "k1"]), mode="append")
    graph.ensure_indices()
    graph.load(lines("Part", texts, list(texts)[2:]), mode="append")
    graph.load(lines("Bare", texts, list(texts)), mode="append")
    corpus = Corpus(graph, texts)
    assert corpus.scores("Part", "red") == pytest.approx(corpus.scores("Bare", "red"))


@pytest.mark.parametrize("waits", [False, True], ids=["rebuilt", "waiting"])
def test_an_index_never_answers_for_the_text_that_a_row_had_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """A changed row keeps its id, and an index knows rows by their ids."""
    monkeypatch.setattr(indices, "REBUILT_ROWS_MAX", 0 if waits else 10_000)
    random = Random(5)
    texts: dict[str, str | None] = {f"k{n}": f"payer w{n}" for n in range(60)}
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process", auto_optimize=False)
    graph.load(lines("Whole", texts, list(texts)), mode="append")
    graph.ensure_indices()
    corpus = Corpus(graph, texts)
    for number in range(8):
        key = f"k{random.randrange(60)}"
        texts[key] = random.choice(("receiver", "payer", "payer receiver")) + f" w{number}"
        if number % 2:
            graph.load(lines("Whole", texts, [key]), mode="merge")
        else:
            change = "query q($k: String, $t: String) {"
            change += " update Whole set { text: $t } where key = $k }"
            graph.mutate(change, params={"k": key, "t": texts[key]})
        graph.optimize()
        for query in ("payer", "receiver", f"w{number}", "payer receiver"):
            expected = corpus.model(has_any, query)
            params = {"t": query, "e": 1}
            assert corpus.keys("Whole", "search($d.text, $t)", params) == expected
            assert corpus.scores("Whole", query).keys() == expected
            assert corpus.keys("Whole", "fuzzy($d.text, $t, $e)", params) == corpus.model(
                has_similar, query, 1
            )


def test_filters_come_before_a_ranking_without_an_index(corpora: list[Corpus]) -> None:
    texts = {
        type_name: f"query q() {{ match {{ $d: {type_name}  $d.key in $keys }}"
        ' return { $d.key, bm25($d.text, "ship red") as s } order { s } limit 3 }'
        for type_name in TYPES
    }
    keys = sorted(corpora[0].model(has_any, "ship red"))[::2]
    answers = [
        corpora[0]
        .graph.query(text.replace("q()", "q($keys: [String])"), params={"keys": keys})
        .json_rows()
        for text in texts.values()
    ]
    assert [row["d.key"] for row in answers[0]] == [row["d.key"] for row in answers[2]]
    assert {row["d.key"] for row in answers[1]} <= set(keys)


def test_a_fuzzy_query_of_too_many_words_is_refused(corpora: list[Corpus]) -> None:
    query = " ".join(f"w{number}" for number in range(TERMS_MAX + 1))
    for type_name in TYPES:
        with pytest.raises(TextQueryError, match=str(TERMS_MAX)) as refused:
            corpora[0].keys(type_name, "fuzzy($d.text, $t)", {"t": query, "e": 1})
        assert refused.value.hint
