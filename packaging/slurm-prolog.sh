#!/bin/sh
# Prolog of Slurm: a node where something does not work gets no job. Warnings do not keep a job away.
# In slurm.conf: Prolog=/etc/slurm/gpumon-prolog.sh
: "${GPUMON:=/opt/gpumon/bin/gpumon}" "${GPUMON_CHECK_OPTIONS:=--ignore gpu.leftovers}"
# shellcheck disable=SC2086 # the options are several words
line=$("$GPUMON" check $GPUMON_CHECK_OPTIONS)
code=$?
[ "$code" -lt 2 ] && exit 0
logger -t gpumon "$line" 2>/dev/null || echo "$line" >&2
[ "$code" -ne 2 ] # 3 is a failure of the check itself, which must not drain a node
