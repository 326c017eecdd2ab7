"""Graphs of a server, with the face of a local one."""

from omnigraph.client.asynchronous import AsyncGraph
from omnigraph.client.remote import RemoteBlob, RemoteGraph, connect, graph_url, served_graphs

__all__ = ["AsyncGraph", "RemoteBlob", "RemoteGraph", "connect", "graph_url", "served_graphs"]
