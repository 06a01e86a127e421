#!/bin/sh
# Slurm's Epilog: brings this node's NICs home, whatever became of the job.
set -eu
verbgate netdev restore
rm -f "/run/verbgate-$SLURM_JOB_ID.env"
umount "/run/netns/verbgate-$SLURM_JOB_ID" 2>/dev/null || true
rm -f "/run/netns/verbgate-$SLURM_JOB_ID"
