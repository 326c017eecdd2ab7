"""`repair`: versions of a dataset that the manifest does not know and no operation explains.

| classification | seen between published and head | what happens |
|---|---|---|
| `no_drift` | nothing | nothing |
| `verified_maintenance` | only compaction and reserved fragment ids | `--confirm` publishes it |
| `suspicious` | anything else: rows were written from outside | `--force --confirm` publishes it |
| `unverifiable` | the transactions cannot be read | the same |

1. Every live branch is examined, each for the lineages that it writes itself. A lineage of another
   branch may have newer versions that its own branch publishes.
2. What a pending intent record names is not drift: recovery explains and settles it.
3. Versions of operations that recovery has voided are never published: the next write to the table
   puts them back.
4. Publishing moves no head, so no intent record is needed. It happens under the lock of the
   branch, and each branch gets a commit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.manifest import CommitDraft, Entry, Published, Repository, Requirements, Updates
from omnigraph.manifest.errors import BranchGoneError
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN
from omnigraph.records import JsonObject
from omnigraph.recovery import Recovery
from omnigraph.recovery.intent import UnreadableIntentError
from omnigraph.recovery.settle import RecoveryStoppedError
from omnigraph.store.records import OperationKind, TransactionInfo
from omnigraph.write.commit.committer import Committer

_MAINTENANCE = frozenset({OperationKind.REWRITE, OperationKind.RESERVE})


class ForceWithoutConfirmError(InvalidInputError):
    """Forcing needs a confirmation as well."""

    code = "OG-REPAIR-FORCE"
    hint = "`omnigraph repair --force --confirm`"
    template = "repair with force needs a confirmation: give --force and --confirm"


class Drift(StrEnum):
    """What was found above the published version of a table."""

    NONE = "no_drift"
    MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class Action(StrEnum):
    """What was done about it."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True)
class TableRepair:
    """One table of a repair."""

    table_key: str
    published_version: int
    head_version: int
    classification: Drift
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None
    branch: str = MAIN

    def to_json(self) -> JsonObject:
        """Return the table as the command line shows it, with its branch unless that is `main`."""
        return {
            **({} if self.branch == MAIN else {"graph_branch": self.branch}),
            "type_key": self.table_key,
            "published_dataset_version": self.published_version,
            "lance_head_version": self.head_version,
            "classification": self.classification.value,
            "action": self.action.value,
            "operations": list(self.operations),
            "error": self.error,
        }


@dataclass(frozen=True, repr=False)
class RepairReport(Displayed):
    """What a repair found and did: all tables of `main`, and those of branches that have drift."""

    confirm: bool
    force: bool
    graph_manifest_version: int | None
    """The version of `main` that was published; None when nothing was published there."""
    tables: tuple[TableRepair, ...]

    def _display(self) -> Display:
        rows = [
            (one.table_key, one.branch, one.classification.value, one.action.value, one.error)
            for one in self.tables
        ]
        title = "repair" if self.confirm else "repair, nothing written without confirm=True"
        return Display(title, ("table", "branch", "found", "action", "error"), rows)

    @property
    def has_refusals(self) -> bool:
        """Whether some drift stays although a repair was confirmed."""
        return any(table.action is Action.REFUSED for table in self.tables)

    def to_json(self) -> JsonObject:
        """Return `{confirm, force, graph_manifest_version, datasets}`."""
        return {
            "confirm": self.confirm,
            "force": self.force,
            "graph_manifest_version": self.graph_manifest_version,
            "datasets": [table.to_json() for table in self.tables],
        }


def classify_drift(moves: tuple[TransactionInfo, ...]) -> Drift:
    """Classify the transactions between published and head."""
    if not moves:
        return Drift.NONE
    if all(move.kind in _MAINTENANCE for move in moves):
        return Drift.MAINTENANCE
    return Drift.SUSPICIOUS


def decide(drift: Drift, *, is_voided: bool, confirm: bool, force: bool) -> Action:
    """Return what a repair does about one table."""
    if drift is Drift.NONE:
        return Action.NO_OP
    if not confirm:
        return Action.PREVIEW
    if is_voided:
        return Action.REFUSED
    if drift is Drift.MAINTENANCE:
        return Action.HEALED
    return Action.FORCED if force else Action.REFUSED


@dataclass(frozen=True)
class _Seen:
    """The drift of one table."""

    entry: Entry
    head: int
    drift: Drift
    moves: tuple[TransactionInfo, ...] = ()
    is_voided: bool = False
    """Whether it may not be published, even with `--force`."""
    problem: str | None = None


class Repair:
    """Looks for drift on every branch and publishes what an operator accepts."""

    def __init__(self, repository: Repository, recovery: Recovery, committer: Committer) -> None:
        self._repository = repository
        self._recovery = recovery
        self._committer = committer
        self._datasets = repository.store.datasets

    def run(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Show drift; with `confirm` publish maintenance, with `force` as well everything else."""
        if force and not confirm:
            raise ForceWithoutConfirmError
        if confirm:
            self._recovery.drop_torn_branches()
        version, tables = self._of_branch(MAIN_INCARNATION, confirm=confirm, force=force)
        for incarnation in self._repository.branches.incarnations():
            if incarnation.is_main:
                continue
            try:
                _, more = self._of_branch(incarnation, confirm=confirm, force=force)
            except BranchGoneError:
                continue
            except (RecoveryStoppedError, UnreadableIntentError) as error:
                more = self._blocked(incarnation, str(error), confirm=confirm)
            tables += [table for table in more if table.classification is not Drift.NONE]
        return RepairReport(confirm, force, version, tuple(tables))

    def _of_branch(
        self, incarnation: Incarnation, *, confirm: bool, force: bool
    ) -> tuple[int | None, list[TableRepair]]:
        """Return the manifest version that was published, if any, and what was found and done."""
        if not confirm:
            state = self._repository.reader.latest(incarnation)
            seen = self._look(incarnation, state)
            return None, _tables(incarnation, seen, confirm=False, force=False)
        operation_id, branch = self._repository.clock.ulid(), incarnation.branch
        with self._committer.branch_lock(
            branch, operation_id=operation_id, operation="repair"
        ) as lock:
            self._recovery.sweep_branch(branch)
            # Its owner would hold the lock that is held here, so it is dead.
            self._repository.branches.clear_schema_lock(incarnation)
            state = self._repository.reader.latest(incarnation)
            seen = self._look(incarnation, state)
            lock.check()
            published = self._publish(incarnation, seen, force=force)
        tables = _tables(incarnation, seen, confirm=True, force=force)
        if published is None:
            return None, tables
        self._committer.record(published)
        return published.manifest_version, tables

    def _blocked(
        self, incarnation: Incarnation, problem: str, *, confirm: bool
    ) -> list[TableRepair]:
        """Describe the tables of a branch whose drift cannot be told from an unfinished write."""
        entries = self._repository.reader.latest(incarnation).entries.values()
        seen = tuple(
            _Seen(entry, entry.table_version, Drift.UNVERIFIABLE, is_voided=True, problem=problem)
            for entry in entries
            if entry.owner_branch == incarnation.text
        )
        return _tables(incarnation, seen, confirm=confirm, force=False)

    def _look(self, incarnation: Incarnation, state: ManifestState) -> tuple[_Seen, ...]:
        settled = self._recovery.log.settled_transactions()
        pending = {
            (table.table_path, table.table_branch): intent.operation_id
            for intent in self._recovery.pending_of(incarnation.branch)
            for table in intent.tables
        }
        return tuple(
            self._look_at(entry, settled, pending)
            if entry.owner_branch == incarnation.text
            else _Seen(entry, entry.table_version, Drift.NONE)
            for entry in state.entries.values()
        )

    def _look_at(
        self,
        entry: Entry,
        settled: Mapping[str, str],
        pending: Mapping[tuple[str, str | None], str],
    ) -> _Seen:
        head = self._datasets.head_version(entry.location, branch=entry.table_branch)
        if head <= entry.table_version:
            return _Seen(entry, head, Drift.NONE)
        operation_id = pending.get((entry.location, entry.table_branch))
        if operation_id is not None:
            covered = f"operation {operation_id} is pending: the next write settles it"
            return _Seen(entry, head, Drift.NONE, problem=covered)
        try:
            moves = self._datasets.transactions(
                entry.location,
                branch=entry.table_branch,
                first=entry.table_version + 1,
                last=head,
            )
        except OmnigraphError as error:
            return _Seen(entry, head, Drift.UNVERIFIABLE, problem=str(error))
        voided = sorted({settled[move.uuid] for move in moves if move.uuid in settled})
        problem = (
            f"operation {', '.join(voided)} was settled by recovery; the next write to this table"
            " puts it back"
            if voided
            else None
        )
        return _Seen(entry, head, classify_drift(moves), moves, bool(voided), problem)

    def _publish(
        self, incarnation: Incarnation, seen: tuple[_Seen, ...], *, force: bool
    ) -> Published | None:
        accepted = {
            each.entry.table_key: each
            for each in seen
            if _action(each, confirm=True, force=force) in (Action.HEALED, Action.FORCED)
        }
        if not accepted:
            return None
        changes_content = any(e.drift is not Drift.MAINTENANCE for e in accepted.values())
        # Rows from outside are content: a writer that expects the old head must be refused.
        operation = "repair_forced" if changes_content else "repair"
        return self._repository.publisher.publish(
            incarnation,
            draft=CommitDraft.new(self._repository.clock, operation),
            requirements=Requirements(written={k: e.entry for k, e in accepted.items()}),
            updates=Updates(entries=tuple(self._entry_at_head(e) for e in accepted.values())),
        )

    def _entry_at_head(self, seen: _Seen) -> Entry:
        entry = seen.entry
        handle = self._datasets.open(entry.location, branch=entry.table_branch, version=seen.head)
        return replace(entry, table_version=seen.head, row_count=handle.count())


def _tables(
    incarnation: Incarnation, seen: tuple[_Seen, ...], *, confirm: bool, force: bool
) -> list[TableRepair]:
    return [
        TableRepair(
            table_key=each.entry.table_key,
            published_version=each.entry.table_version,
            head_version=each.head,
            classification=each.drift,
            action=_action(each, confirm=confirm, force=force),
            operations=tuple(move.kind.value for move in each.moves),
            error=each.problem,
            branch=str(incarnation.branch),
        )
        for each in seen
    ]


def _action(seen: _Seen, *, confirm: bool, force: bool) -> Action:
    return decide(seen.drift, is_voided=seen.is_voided, confirm=confirm, force=force)
