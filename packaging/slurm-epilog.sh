#!/bin/sh
# Epilog of Slurm: a process that a job left on its GPUs is reported, and the node gets no other job until someone looks.
# In slurm.conf: Epilog=/etc/slurm/gpumon-epilog.sh
: "${GPUMON:=/opt/gpumon/bin/gpumon}"
[ -n "$SLURM_JOB_GPUS" ] || exit 0
left=$("$GPUMON" status --gpu "$SLURM_JOB_GPUS" --json) || exit 0 # a node without an answer is the concern of the prolog
pids=$(printf '%s' "$left" | sed -n 's/^ *"pid": \([0-9]*\),*$/\1/p' | sort -u | tr '\n' ' ')
[ -z "$pids" ] && exit 0
logger -t gpumon "job $SLURM_JOB_ID left processes on GPU $SLURM_JOB_GPUS: $pids" 2>/dev/null || echo "left: $pids" >&2
exit 1
