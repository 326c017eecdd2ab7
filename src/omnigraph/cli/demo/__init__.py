"""The parts of `omnigraph demo`."""
