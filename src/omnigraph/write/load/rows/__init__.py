"""The rows of a load on their way to storage, and those that it rejects."""
