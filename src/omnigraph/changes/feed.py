"""The change feed: what happened on a branch, commit by commit, from any cursor.

1. A poll captures the head of the branch as its cut; later commits wait for the next poll. A page
   that continues a poll keeps its cut.
2. Blocks follow the chain of first parents, oldest first. What a merge brought in is one block.
   Commits without a change are empty blocks, so that they advance the cursor.
3. A page that ends inside a block carries only a page token. A cursor stands after complete commits
   only, and is never given inside a block.
4. A commit whose changes are lost is an error when it is the first of a poll; otherwise the page
   ends before it.
5. A cursor binds graph, history, branch, incarnation and filter. The server holds no state of a
   reader: delivery is at least once, to be applied by commit id.
6. A commit that changed the schema of what it changed is an error, unless the reader asks for such
   commits: then the block begins with the steps. Cursors are the same for both kinds of readers,
   because they stand between commits; a page token inside such a block needs the same wish again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from omnigraph.changes.commit_changes import (
    PAGE_CHANGES_DEFAULT,
    PAGE_CHANGES_MAX,
    Budget,
    CommitDiff,
    ParentlessCommitError,
    block_header,
    cause_of,
    check_page,
)
from omnigraph.changes.diff import Boundary, ChangeGapError, SchemaBoundaryError
from omnigraph.changes.selection import Selection
from omnigraph.changes.tokens import (
    CursorRejectedError,
    Position,
    TokenKind,
    decode,
    digest,
    encode,
    read_text,
    require,
)
from omnigraph.errors import InvalidInputError
from omnigraph.manifest import GraphCommit, Snapshot
from omnigraph.manifest.history import History
from omnigraph.names import choice

COMMITS_DEFAULT: Final = 128
COMMITS_MAX: Final = 512
_AFTER: Final = "after:"


class FeedStartError(InvalidInputError):
    """The start of a poll is invalid."""

    code = "OG-FEED-START"
    hint = "start at `now`, `beginning` or `after:<commit id>`"
    template = "unknown start '{found}': expected now, beginning or after:<commit id>"
    found: str


class SchemaChanges(StrEnum):
    """What the feed does with a commit that changed the schema of what it changed."""

    REFUSE = "refuse"
    DELIVER = "deliver"

    @property
    def boundary(self) -> Boundary:
        """Which schema changes the comparison of a commit goes across."""
        return Boundary.CLOSED if self is SchemaChanges.REFUSE else Boundary.MATCHED


@dataclass(frozen=True)
class FeedRequest:
    """Where to continue and how much to return; at most one of the three starts is given."""

    selection: Selection = field(default_factory=Selection)
    cursor: str | None = None
    start: str | None = None
    page_token: str | None = None
    limit: int = PAGE_CHANGES_DEFAULT
    commits_max: int = COMMITS_DEFAULT
    schema_changes: str = SchemaChanges.REFUSE
    """`refuse` or `deliver`."""


@dataclass
class Block:
    """The changes of one commit, or a part of them."""

    cause: dict[str, object]
    changes: list[dict[str, Any]] = field(default_factory=list)
    schema_changes: tuple[dict[str, Any], ...] = ()

    def header(self) -> dict[str, object]:
        """Return the JSON form without the changes."""
        return block_header(self.cause, self.schema_changes)

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        return self.header() | {"changes": self.changes}


@dataclass(frozen=True)
class FeedPage:
    """One page: it has either a page token or a cursor."""

    blocks: tuple[Block, ...]
    cursor: str | None = None
    caught_up: bool | None = None
    next_page_token: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        shape: dict[str, object] = {"blocks": [block.to_json() for block in self.blocks]}
        if self.next_page_token is not None:
            return shape | {"next_page_token": self.next_page_token}
        return shape | {"cursor": self.cursor, "caught_up": self.caught_up}


@dataclass(frozen=True)
class _Span:
    """After which commit to continue, up to which one, and where inside the first."""

    done: str
    cut: str
    inside: object = None


class Feed:
    """The feed of one branch, as one request sees it."""

    def __init__(
        self, history: History, snapshot: Snapshot, selection: Selection, *, graph: str
    ) -> None:
        self._history = history
        self._selection = selection
        # Newest first: the chain of first parents, with what the branch inherited.
        self._chain = snapshot.state.commits()
        self._numbers = {c.graph_commit_id: n for n, c in enumerate(reversed(self._chain))}
        self._head = snapshot.commit_id
        genesis = self._chain[-1].graph_commit_id
        self._bound = {
            "graph": digest(graph),
            "history": digest(genesis),
            "branch": digest(str(snapshot.branch)),
            "incarnation": digest(snapshot.incarnation.text),
            "filter": selection.digest,
        }
        self._genesis = genesis

    def cursor_at(self, commit_id: str) -> str:
        """Return the cursor of a reader that has seen everything up to a commit."""
        return encode("feed-cursor", self._bound | {"commit": commit_id})

    def commit_of(self, cursor: str) -> str:
        """Return the last commit that the reader of a cursor has seen, or reject the cursor."""
        return self._known(read_text(self._checked(cursor, "feed-cursor"), "commit"))

    @property
    def commits(self) -> tuple[GraphCommit, ...]:
        """The chain of first parents, oldest first; the feed is all of it but the first."""
        return tuple(reversed(self._chain))

    def poll(self, request: FeedRequest) -> FeedPage:
        """Return what has happened since a start."""
        check_page("commit_changes_page_changes", limit=PAGE_CHANGES_MAX, actual=request.limit)
        check_page("change_feed_page_commits", limit=COMMITS_MAX, actual=request.commits_max)
        wish = choice(SchemaChanges, request.schema_changes, "treatment of schema changes")
        span = self._span(request)
        oldest_first = self._chain[::-1]
        first = self._numbers[span.done] + 1
        last = self._numbers[span.cut] + 1
        blocks: list[Block] = []
        budget = Budget(request.limit)
        done, inside = span.done, span.inside
        for commit in oldest_first[first:last][: request.commits_max]:
            diff = CommitDiff(self._history, commit, self._selection, boundary=wish.boundary)
            try:
                block, position = self._block(diff, inside, budget)
            except (ChangeGapError, SchemaBoundaryError, ParentlessCommitError) as error:
                if blocks:
                    return FeedPage(tuple(blocks), self.cursor_at(done), caught_up=False)
                raise self._with_cursor(error, request.cursor) from error
            if block is None:
                return FeedPage(tuple(blocks), self.cursor_at(done), caught_up=False)
            blocks.append(block)
            if position is not None:
                return FeedPage(tuple(blocks), next_page_token=self._page(done, span.cut, position))
            done, inside = commit.graph_commit_id, None
        is_head = done == span.cut == self._head
        return FeedPage(tuple(blocks), self.cursor_at(done), caught_up=is_head)

    # -- starts -----------------------------------------------------------------------------------

    def _span(self, request: FeedRequest) -> _Span:
        given = [request.cursor, request.start, request.page_token]
        if sum(each is not None for each in given) > 1:
            raise FeedStartError("cursor, start and page_token together")
        if request.page_token is not None:
            fields = self._checked(request.page_token, "feed-page")
            span = _Span(
                self._known(read_text(fields, "commit")),
                self._known(read_text(fields, "cut")),
                fields.get("position"),
            )
            if self._numbers[span.done] >= self._numbers[span.cut]:
                raise CursorRejectedError("it goes on after its own end")
            return span
        if request.cursor is not None:
            fields = self._checked(request.cursor, "feed-cursor")
            return _Span(self._known(read_text(fields, "commit")), self._head)
        return _Span(self._start(request.start or "now"), self._head)

    def _start(self, text: str) -> str:
        if text == "now":
            return self._head
        if text == "beginning":
            return self._genesis
        if text.startswith(_AFTER):
            return self._known(text.removeprefix(_AFTER))
        raise FeedStartError(text)

    def _known(self, commit_id: str) -> str:
        if commit_id not in self._numbers:
            raise CursorRejectedError("its commit is not in the history of this branch")
        return commit_id

    def _checked(self, token: str, kind: TokenKind) -> dict[str, Any]:
        fields = decode(token, kind)
        require(fields, self._bound)
        return fields

    def _page(self, done: str, cut: str, position: Position) -> str:
        fields = {"commit": done, "cut": cut, "position": position.to_json()}
        return encode("feed-page", self._bound | fields)

    # -- blocks -----------------------------------------------------------------------------------

    def _block(
        self, diff: CommitDiff, inside: object, budget: Budget
    ) -> tuple[Block | None, Position | None]:
        """Return the changes of a commit as far as the page has space.

        Also returns a position when the page ends inside the block; returns no block when it ends
        before the block's first change.
        """
        after = None if inside is None else diff.position(inside)
        block = Block(cause_of(diff.commit), schema_changes=diff.schema_changes)
        last = after
        for position, change in diff.changes(after):
            if not budget.take(change):
                return (None, None) if last is None else (block, last)
            block.changes.append(change)
            last = position
        return block, None

    def _with_cursor(self, error: Exception, cursor: str | None) -> Exception:
        if isinstance(error, ChangeGapError):
            return ChangeGapError(error.graph_commit_id, cursor)
        return error
