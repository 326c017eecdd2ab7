"""Declared graphs: a folder of files says what there should be, a ledger what there is."""
