#!/bin/sh
# Slurm's Prolog: moves this node's NICs into a network namespace for the job, in which its
# container is then started (/run/netns/verbgate-JOB). To be paired with slurm-epilog.sh.
#
# VERBGATE_MANIFESTS: a folder that all nodes see, with the manifest of each (verbgate manifest).
set -eu
verbgate netdev restore
rails=$(verbgate manifest agree --node "$SLURMD_NODENAME" \
    $(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s|.*|$VERBGATE_MANIFESTS/&.json|"))
verbgate prepare --role "$SLURM_JOB_ID" --iface "$rails" >"/run/verbgate-$SLURM_JOB_ID.env"
