"""From the text of `cluster.yaml` to its checked parts, which `load_desired` joins.

| module | step |
|---|---|
| `read` | text to a `ClusterConfig`: repeated and reserved keys, then the shape |
| `header` | label, storage root, state |
| `names` | names of resources, references between them |
| `providers`, `graphs`, `policies`, `pipelines` | one kind of resource each |
| `queries`, `blob_bases` | parts of a graph |
"""
