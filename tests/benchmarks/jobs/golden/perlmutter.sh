#!/bin/bash -l
#SBATCH --job-name=weak-scaling-job-000
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --chdir=/results/perlmutter/weak-scaling-0123456789abcdef
#SBATCH --output=/results/perlmutter/weak-scaling-0123456789abcdef/jobs/job-000.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --account=abc123
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --gpus-per-node=4

set -eo pipefail
cd /results/perlmutter/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module load pytorch
set -u

export CUDA_VISIBLE_DEVICES=3,2,1,0
export FI_MR_CACHE_MONITOR=userfaultfd
export HDF5_USE_FILE_LOCKING=FALSE

exec "$SCRATCH/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/perlmutter/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 '--nodelist=nid[00001-00002]' --kill-on-bad-exit=1 --export=ALL -u --gpu-bind=none python -m dlscale.benchmarks.rank.worker spool/x
