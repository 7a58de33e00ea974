#!/bin/bash -l
#PBS -N weak-sc-job-000
#PBS -l select=4:ncpus=104:mpiprocs=12
#PBS -l place=scatter:excl
#PBS -l walltime=02:00:00
#PBS -j oe
#PBS -o /results/aurora/weak-scaling-0123456789abcdef/jobs/job-000.log
#PBS -r y
#PBS -A abc123
#PBS -q prod
#PBS -l filesystems=home:flare
#PBS -v PROJECT

set -eo pipefail
cd /results/aurora/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module load frameworks
set -u

export ZE_FLAT_DEVICE_HIERARCHY=FLAT

exec "/lus/flare/projects/$PROJECT/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/aurora/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 mpiexec -n 24 --ppn 12 --hosts x3001c0s1b0n0,x3001c0s1b1n0 --envall --no-transfer --pmi=pmix --cpu-bind=list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100 python -m dlscale.benchmarks.rank.worker spool/x
