#!/bin/sh
# Slurm's Prolog: moves this node's NICs into a network namespace for the job (/run/netns/verbgate-JOB),
# in which the job's container then starts. Use slurm-epilog.sh with this script.
#
# VERBGATE_MANIFESTS: a folder that all nodes see, with the manifest of each (verbgate manifest).
# Without the folder, as for jobs of one node, all NICs of this node are moved that can be moved.
# VERBGATE_AGREE: options of `verbgate manifest agree`, such as --allow-dropped, or --by name where each
# node has networks of its own (routed RoCE). Without --allow-dropped, a rail that is missing on some node
# of the job fails the job.
#
# A Prolog that fails drains the node: the script brings the NICs back first.
set -eu
undo() {
    status=$?
    [ "$status" = 0 ] || verbgate netdev restore || true
    exit "$status"
}
trap undo EXIT
# Leftovers of an earlier job whose epilog did not run.
verbgate gc
verbgate netdev restore
if [ -n "${VERBGATE_MANIFESTS-}" ]; then
    set --
    for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        set -- "$@" "$VERBGATE_MANIFESTS/$node.json"
    done
    # shellcheck disable=SC2086  # Unquoted, since it may hold several options.
    rails=$(verbgate manifest agree --node "$SLURMD_NODENAME" --options ${VERBGATE_AGREE-} "$@")
    # shellcheck disable=SC2086  # The options of prepare that choose the rails.
    set -- $rails
else
    set --
fi
umask 077
verbgate prepare --role "$SLURM_JOB_ID" "$@" >"/run/verbgate-$SLURM_JOB_ID.env"
