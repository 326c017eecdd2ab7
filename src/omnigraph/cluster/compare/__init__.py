"""Declared against applied state: pure functions from frozen values to frozen values."""
