"""What a cluster keeps in its storage root, object by object.

| object | module |
|---|---|
| `__cluster/state.json` | `ledger` |
| `__cluster/lock.json` | `lock` |
| `__cluster/recoveries/<ulid>.json` | `intents` |
| `__cluster/approvals/<ulid>.json` | `approvals` |
| `__cluster/resources/…` | `catalog` |
| `graphs/<id>.omni/` | the engine's; `root` names them |
"""
