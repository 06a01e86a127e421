#!/bin/sh
# Slurm's Prolog: moves this node's NICs into a network namespace for the job, in which its
# container is then started (/run/netns/verbgate-JOB). To be paired with slurm-epilog.sh.
#
# VERBGATE_MANIFESTS: a folder that all nodes see, with the manifest of each (verbgate manifest).
# Without it, as for jobs of one node, all NICs of this node are moved that can be.
# VERBGATE_AGREE: options of `verbgate manifest agree`, such as --allow-dropped or --by name. Without
# the first, a rail that some node of the job is missing fails the job.
#
# A Prolog that fails drains the node: whatever was moved is brought home first.
set -eu
undo() {
    status=$?
    [ "$status" = 0 ] || verbgate netdev restore || true
    exit "$status"
}
trap undo EXIT
# What a job before this one left, whose epilog did not run.
verbgate gc
verbgate netdev restore
if [ -n "${VERBGATE_MANIFESTS-}" ]; then
    set --
    for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        set -- "$@" "$VERBGATE_MANIFESTS/$node.json"
    done
    # shellcheck disable=SC2086  # Unquoted, since it may hold several options.
    rails=$(verbgate manifest agree --node "$SLURMD_NODENAME" ${VERBGATE_AGREE-} "$@")
    set -- --iface "$rails"
else
    set --
fi
umask 077
verbgate prepare --role "$SLURM_JOB_ID" "$@" >"/run/verbgate-$SLURM_JOB_ID.env"
