"""Bulk load on Spark.

Spark is used as a pool of Python processes, not as a query engine:

1. Rows never enter the JVM. A task reads its splits with Arrow, checks rows with the code of the
   in-process engine and writes Lance fragments itself. Only rows that the caller hands over as a
   DataFrame come from Spark, once, as Arrow batches.
2. Nothing is shuffled, unless `order_by` sorts DataFrames. Rules that compare rows (unique keys and
   tuples, ends of edges, `@card`) would be joins and groupings over all rows, stored ones included.
   Instead every task leaves *sorted runs* of 64-bit hashes in side files: 8 bytes per row, and the
   ids where a set of them is needed. Merging sorted runs range by range (`hash_runs`, `key_set`)
   shows what repeats, in bounded memory.
3. Different hashes mean different texts, so runs without a repeated hash prove that a rule holds
   (`proofs`). Anything else is decided by the rules of the in-process engine over the staged
   columns (`read_back`), so both engines report the same violations with the same words.
4. Every job is a function over a list of small arguments (`omnigraph.spark.jobs`). The tests run
   the same functions without Spark.
"""
