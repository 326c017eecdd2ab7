"""The query benchmark: one data set, and one module per engine that answers the same questions.

An engine is a module with `NAME`, the libraries that it `NEEDS`, `build(data, root)` and
`opened(data, root)`; the latter returns an `Engine`. Every engine runs in a process of its own
(`bench.peers.worker`), with the interpreter in which its library is installed.
"""
