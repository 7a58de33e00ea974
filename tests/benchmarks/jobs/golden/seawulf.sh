#!/bin/bash -l
#PBS -N weak-sc-job-000
#PBS -l nodes=4:ppn=28
#PBS -l walltime=02:00:00
#PBS -j oe
#PBS -o /results/seawulf/weak-scaling-0123456789abcdef/jobs/job-000.log
#PBS -r y
#PBS -A abc123

set -eo pipefail
cd /results/seawulf/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module load cudnn/5.1
module load cuda80/toolkit/8.0.44
module load anaconda/3
set -u

exec "/gpfs/scratch/$USER/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/seawulf/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# mpiexec -n 16 --host cc001:8,cc002:8 --map-by ppr:8:node --bind-to none -x MKL_NUM_THREADS=33 -x KMP_AFFINITY=granularity=fine,compact,1,0 python -m dlscale.benchmarks.rank.worker spool/x
