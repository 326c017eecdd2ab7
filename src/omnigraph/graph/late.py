"""What only some calls of a graph need: each of these modules is imported at its first use.

Opening a graph and reading from it needs none of them. A call that needs one pays for it once.
"""

from typing import TYPE_CHECKING

from omnigraph.late import LateModule

if TYPE_CHECKING:
    import omnigraph.engine.weigh as weights
    from omnigraph import engine as engines
    from omnigraph import policy as policies
    from omnigraph.changes import commit_changes, type_pairs
    from omnigraph.changes import diff as differences
    from omnigraph.changes import feed as feeds
    from omnigraph.changes import selection as selections
    from omnigraph.graph import loads, write_side
    from omnigraph.graph import schema_guard as schema_rules
    from omnigraph.lineage import inputs as lineage_inputs
    from omnigraph.lineage import openlineage
    from omnigraph.lineage import record as lineage_record
    from omnigraph.lineage import trace as traces
    from omnigraph.lineage import transport as lineage_transport
    from omnigraph.maintenance import background as background_work
    from omnigraph.maintenance import health
    from omnigraph.maintenance import optimize as optimizing
    from omnigraph.maintenance import repair as repairs
    from omnigraph.maintenance.cleanup import cleanup as cleanups
    from omnigraph.maintenance.cleanup import needed as cleanup_policy
    from omnigraph.maintenance.cleanup import purge as purging
    from omnigraph.maintenance.cleanup import report as cleanup_report
    from omnigraph.maintenance.scrub import report as scrub_reports
    from omnigraph.maintenance.scrub import scrub as scrubbing
    from omnigraph.merge import decision_file
    from omnigraph.merge import merger as merging
    from omnigraph.merge import request as merge_requests
    from omnigraph.merge import resolve as resolutions
    from omnigraph.merge import result as merge_results
    from omnigraph.query import lint as linting
    from omnigraph.read.access import blobs
    from omnigraph.schema import difference as schema_differences
    from omnigraph.schema.merge import model as schema_merges
    from omnigraph.schema.migration import plan as migrations
    from omnigraph.schema.values import converted as conversions
    from omnigraph.write import schema_apply as schema_applies
    from omnigraph.write.commit import committer as committers
    from omnigraph.write.commit import terms as commit_terms
    from omnigraph.write.embed import row_embedder
    from omnigraph.write.embed import stored as stored_vectors
    from omnigraph.write.export import exporter
    from omnigraph.write.load import options as load_options
    from omnigraph.write.load import result as load_result
    from omnigraph.write.load.formats import kinds as file_kinds
    from omnigraph.write.load.input import source as record_input
    from omnigraph.write.load.input import table_source as table_input
    from omnigraph.write.mutate import mutations
    from omnigraph.write.stage import delta as write_modes
    from omnigraph.write.stage import staging_record as staging_records
else:
    background_work = LateModule("omnigraph.maintenance.background")
    blobs = LateModule("omnigraph.read.access.blobs")
    cleanup_policy = LateModule("omnigraph.maintenance.cleanup.needed")
    cleanup_report = LateModule("omnigraph.maintenance.cleanup.report")
    cleanups = LateModule("omnigraph.maintenance.cleanup.cleanup")
    commit_changes = LateModule("omnigraph.changes.commit_changes")
    commit_terms = LateModule("omnigraph.write.commit.terms")
    committers = LateModule("omnigraph.write.commit.committer")
    conversions = LateModule("omnigraph.schema.values.converted")
    decision_file = LateModule("omnigraph.merge.decision_file")
    differences = LateModule("omnigraph.changes.diff")
    engines = LateModule("omnigraph.engine")
    exporter = LateModule("omnigraph.write.export.exporter")
    feeds = LateModule("omnigraph.changes.feed")
    file_kinds = LateModule("omnigraph.write.load.formats.kinds")
    health = LateModule("omnigraph.maintenance.health")
    lineage_inputs = LateModule("omnigraph.lineage.inputs")
    lineage_record = LateModule("omnigraph.lineage.record")
    lineage_transport = LateModule("omnigraph.lineage.transport")
    linting = LateModule("omnigraph.query.lint")
    load_options = LateModule("omnigraph.write.load.options")
    load_result = LateModule("omnigraph.write.load.result")
    loads = LateModule("omnigraph.graph.loads")
    merge_requests = LateModule("omnigraph.merge.request")
    merge_results = LateModule("omnigraph.merge.result")
    merging = LateModule("omnigraph.merge.merger")
    migrations = LateModule("omnigraph.schema.migration.plan")
    mutations = LateModule("omnigraph.write.mutate.mutations")
    openlineage = LateModule("omnigraph.lineage.openlineage")
    optimizing = LateModule("omnigraph.maintenance.optimize")
    policies = LateModule("omnigraph.policy")
    purging = LateModule("omnigraph.maintenance.cleanup.purge")
    record_input = LateModule("omnigraph.write.load.input.source")
    repairs = LateModule("omnigraph.maintenance.repair")
    resolutions = LateModule("omnigraph.merge.resolve")
    row_embedder = LateModule("omnigraph.write.embed.row_embedder")
    schema_applies = LateModule("omnigraph.write.schema_apply")
    schema_differences = LateModule("omnigraph.schema.difference")
    schema_merges = LateModule("omnigraph.schema.merge.model")
    schema_rules = LateModule("omnigraph.graph.schema_guard")
    scrub_reports = LateModule("omnigraph.maintenance.scrub.report")
    scrubbing = LateModule("omnigraph.maintenance.scrub.scrub")
    selections = LateModule("omnigraph.changes.selection")
    staging_records = LateModule("omnigraph.write.stage.staging_record")
    stored_vectors = LateModule("omnigraph.write.embed.stored")
    table_input = LateModule("omnigraph.write.load.input.table_source")
    traces = LateModule("omnigraph.lineage.trace")
    type_pairs = LateModule("omnigraph.changes.type_pairs")
    weights = LateModule("omnigraph.engine.weigh")
    write_modes = LateModule("omnigraph.write.stage.delta")
    write_side = LateModule("omnigraph.graph.write_side")

__all__ = [
    "background_work",
    "blobs",
    "cleanup_policy",
    "cleanup_report",
    "cleanups",
    "commit_changes",
    "commit_terms",
    "committers",
    "conversions",
    "decision_file",
    "differences",
    "engines",
    "exporter",
    "feeds",
    "file_kinds",
    "health",
    "lineage_inputs",
    "lineage_record",
    "lineage_transport",
    "linting",
    "load_options",
    "load_result",
    "loads",
    "merge_requests",
    "merge_results",
    "merging",
    "migrations",
    "mutations",
    "openlineage",
    "optimizing",
    "policies",
    "purging",
    "record_input",
    "repairs",
    "resolutions",
    "row_embedder",
    "schema_applies",
    "schema_differences",
    "schema_merges",
    "schema_rules",
    "scrub_reports",
    "scrubbing",
    "selections",
    "staging_records",
    "stored_vectors",
    "table_input",
    "traces",
    "type_pairs",
    "weights",
    "write_modes",
    "write_side",
]
