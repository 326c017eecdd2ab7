"""What only a call of an embedding provider needs: imported at its first use."""

from typing import TYPE_CHECKING

from omnigraph.late import LateModule

if TYPE_CHECKING:
    from omnigraph.search.embedding import http as provider_http
else:
    provider_http = LateModule("omnigraph.search.embedding.http")

__all__ = ["provider_http"]
