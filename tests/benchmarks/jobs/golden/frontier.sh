#!/bin/bash -l
#SBATCH --job-name=weak-scaling-job-000
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --chdir=/results/frontier/weak-scaling-0123456789abcdef
#SBATCH --output=/results/frontier/weak-scaling-0123456789abcdef/jobs/job-000.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --account=abc123
#SBATCH --partition=batch
#SBATCH --network=disable_rdzv_get

set -eo pipefail
cd /results/frontier/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module load PrgEnv-gnu/8.7.0
module load cpe/26.03
module load miniforge3/23.11.0-0
module load rocm/7.1.1
module load rccl-net-plugin
module load craype-accel-amd-gfx90a
export LD_LIBRARY_PATH=$CRAY_LD_LIBRARY_PATH:$LD_LIBRARY_PATH
srun --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 --kill-on-bad-exit=1 cp -R "$MEMBERWORK/$PROJID/dlscale-site" /tmp
set -u

export MPICH_GPU_SUPPORT_ENABLED=1
export MIOPEN_USER_DB_PATH=/tmp/miopen-cache
export MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-cache

exec /tmp/dlscale-site/bin/python -m dlscale.benchmarks.jobs.allocation /results/frontier/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 '--nodelist=nid[00001-00002]' --kill-on-bad-exit=1 --export=ALL --gpu-bind=closest python -m dlscale.benchmarks.rank.worker spool/x
