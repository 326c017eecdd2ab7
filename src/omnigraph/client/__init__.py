"""Graphs of a server, with the face of a local one."""

from omnigraph.client.asynchronous import AsyncGraph
from omnigraph.client.remote import RemoteGraph, connect

__all__ = ["AsyncGraph", "RemoteGraph", "connect"]
