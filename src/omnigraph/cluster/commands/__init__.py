"""The commands of a cluster: each takes declared state and a workplace, and returns a report."""
