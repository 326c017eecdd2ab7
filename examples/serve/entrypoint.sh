#!/bin/sh
# The start of the container: arguments are those of `omnigraph serve`; without any, the
# environment names the cluster (OMNIGRAPH_CLUSTER) and the address (OMNIGRAPH_BIND).
set -eu
if [ "$#" -gt 0 ]; then
    exec omnigraph serve "$@"
fi
if [ -z "${OMNIGRAPH_CLUSTER:-}" ]; then
    echo "error: set OMNIGRAPH_CLUSTER, or give arguments of omnigraph serve" >&2
    exit 64
fi
exec omnigraph serve --cluster "$OMNIGRAPH_CLUSTER" --bind "${OMNIGRAPH_BIND:-0.0.0.0:8080}"
