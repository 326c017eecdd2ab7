"""Requests and answers as bytes: connections, headers, paths, bodies, streams."""
