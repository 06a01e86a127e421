#!/bin/sh
# Runs a container with this node's rails: a second container holds the network namespace, so that the RoCE
# NICs are there before the program starts. InfiniBand needs no move, and a bond stays: then the container
# uses the host's network.
#
#   docker.sh IMAGE COMMAND...
#
# VERBGATE_MANIFESTS: a folder with the manifest of each node (verbgate manifest). Without the folder, all
# NICs of this node are moved that can be moved.
# VERBGATE_AGREE: options of `verbgate manifest agree`, such as --allow-dropped, or --by name where each
# node has networks of its own (routed RoCE).
# VERBGATE_NODE: this node's name in the manifests [default: the host's name].
set -eu
node=${VERBGATE_NODE-$(hostname)}
rails=
if [ -n "${VERBGATE_MANIFESTS-}" ]; then
    # shellcheck disable=SC2086  # Unquoted, since it may hold several options.
    rails=$(verbgate manifest agree --node "$node" --options ${VERBGATE_AGREE-} "$VERBGATE_MANIFESTS"/*.json)
fi
holder=$(docker run -d --rm --entrypoint sleep "$1" infinity)
settings=/run/verbgate-$holder.env
trap 'verbgate netdev restore; docker rm -f "$holder" >/dev/null; rm -f "$settings"' EXIT
# shellcheck disable=SC2086  # The options that choose the rails.
prepared=$(verbgate prepare --role "$node" --to "$holder" $rails)
network=container:$holder
case $prepared in
*"a bond stays"*) network=host ;;
# Without a move, verbgate would take the link by which processes find each other from the host.
*"no NIC to move"*) rails="$rails --netns $holder" ;;
esac
# shellcheck disable=SC2086
verbgate nccl env --format docker $rails >"$settings"
docker run --rm --network "$network" --env-file "$settings" --ulimit memlock=-1:-1 "$@"
