"""`omnigraph cluster …`: graphs that a folder of files declares. `group.py` lists the commands."""
