"""The lock of a branch: between threads, processes, and machines."""
