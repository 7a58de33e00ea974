#!/bin/bash -l
#COBALT --jobname weak-scaling-job-000
#COBALT -n 4
#COBALT -t 120
#COBALT --cwd /results/theta/weak-scaling-0123456789abcdef
#COBALT -o /results/theta/weak-scaling-0123456789abcdef/jobs/job-000.log
#COBALT -e /results/theta/weak-scaling-0123456789abcdef/jobs/job-000.log
#COBALT -A abc123
#COBALT -q default
#COBALT --attrs mcdram=cache:numa=quad

set -eo pipefail
cd /results/theta/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module load datascience/tensorflow-1.12
module load datascience/horovod-0.15.2
set -u

export OMP_NUM_THREADS=32
export KMP_BLOCKTIME=0

exec "/lus/theta-fs0/projects/$PROJECT/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/theta/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# aprun -n 8 -N 4 -d 32 -L 3829,3830 -e MKL_NUM_THREADS=33 -e KMP_AFFINITY=granularity=fine,compact,1,0 -j 2 -cc depth python -m dlscale.benchmarks.rank.worker spool/x
