#!/bin/sh
# Prepares the nodes of a cluster over ssh: every node writes its manifest, one place works out the
# rails that all nodes have, and every node moves the NICs of these rails. verbgate makes all decisions.
# InfiniBand's ports are rails, too, and need no move.
#
#   cluster-ssh.sh NODE...             then, on each node, e.g.:
#                                      podman run --network ns:/run/netns/verbgate-NODE ...
#   cluster-ssh.sh --restore NODE...
#
# VERBGATE_AGREE: options of `verbgate manifest agree`, such as --allow-dropped, or --by name where each
# node has networks of its own (routed RoCE). Without --allow-dropped, nothing is moved while a rail is
# missing on some node.
set -eu
if [ "${1-}" = --restore ]; then
    shift
    for node; do ssh -- "$node" verbgate netdev restore; done
    exit
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for node; do ssh -- "$node" verbgate manifest --node "$node" >"$dir/$node.json"; done
for node; do
    # shellcheck disable=SC2086  # Unquoted, since it may hold several options.
    rails=$(verbgate manifest agree --node "$node" --options ${VERBGATE_AGREE-} "$dir"/*.json)
    # shellcheck disable=SC2086  # The options of prepare that choose the rails.
    ssh -- "$node" verbgate prepare --role "$node" $rails
done
