"""The formats that a load reads.

| module | does |
|---|---|
| `files` | finds files: folders, globs, partitions, object storage; opens and decompresses them |
| `kinds` | lists the formats, and finds the format of a file by its name, then by its content |
| `csv_rows`, `columnar` | files of tables become Arrow batches |
| `json_array`, `json_rows` | elements become lines; rows without an envelope get one |
| `frames` | tables in memory become Arrow batches |
| `rows` | rows of one type, from any of these, become converted columns |
| `description` | what a caller may say about a source |
| `exported` | a folder that an export wrote is the files that its summary names |
"""
