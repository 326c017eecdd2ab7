"""The one way in which prepared writes become visible."""
