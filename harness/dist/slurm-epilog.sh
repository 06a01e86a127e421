#!/bin/sh
# Slurm's Epilog: brings this node's NICs back, whatever became of the job. All steps are tried; an
# Epilog that fails drains the node, which is right while a NIC is missing.
set -u
status=0
verbgate netdev restore || status=1
verbgate gc || status=1
rm -f "/run/verbgate-$SLURM_JOB_ID.env"
umount "/run/netns/verbgate-$SLURM_JOB_ID" 2>/dev/null || true
rm -f "/run/netns/verbgate-$SLURM_JOB_ID"
exit "$status"
