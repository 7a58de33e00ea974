#!/bin/bash -l
#SBATCH --job-name=weak-scaling-job-000
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=14
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --chdir=/results/dgx-like/weak-scaling-0123456789abcdef
#SBATCH --output=/results/dgx-like/weak-scaling-0123456789abcdef/jobs/job-000.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --account=abc123
#SBATCH --partition=batch
#SBATCH --gpus-per-node=8

set -eo pipefail
cd /results/dgx-like/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

set -u

exec "$SCRATCH/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/dgx-like/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=14 '--nodelist=nid[00001-00002]' --kill-on-bad-exit=1 --export=ALL -u python -m dlscale.benchmarks.rank.worker spool/x
