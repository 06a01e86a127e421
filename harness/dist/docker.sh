#!/bin/sh
# Runs a container with this node's RoCE NICs: a second container holds the network namespace, so that
# the NICs are there before the program starts.
#
#   docker.sh IMAGE COMMAND...
set -eu
holder=$(docker run -d --rm --entrypoint sleep "$1" infinity)
trap 'verbgate netdev restore; docker rm -f "$holder" >/dev/null' EXIT
verbgate netdev move --to "$holder"
verbgate nccl env --format docker >"/run/verbgate-$holder.env"
docker run --rm --network "container:$holder" --env-file "/run/verbgate-$holder.env" \
    --ulimit memlock=-1:-1 "$@"
rm -f "/run/verbgate-$holder.env"
