#!/bin/bash -l
#COBALT --jobname weak-scaling-job-000
#COBALT -n 4
#COBALT -t 120
#COBALT --cwd /results/cooley/weak-scaling-0123456789abcdef
#COBALT -o /results/cooley/weak-scaling-0123456789abcdef/jobs/job-000.log
#COBALT -e /results/cooley/weak-scaling-0123456789abcdef/jobs/job-000.log
#COBALT -A abc123
#COBALT -q default
#COBALT --attrs=nox11

set -eo pipefail
cd /results/cooley/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

soft add +mvapich2
set -u

exec "/lus/theta-fs0/projects/$PROJECT/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/cooley/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# mpiexec -n 4 -hosts cc001,cc002 -ppn 2 -bind-to none -genv MKL_NUM_THREADS 33 -genv KMP_AFFINITY granularity=fine,compact,1,0 python -m dlscale.benchmarks.rank.worker spool/x
