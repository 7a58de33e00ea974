#!/bin/bash -l
#SBATCH --job-name=weak-scaling-job-000
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --chdir=/results/alps-daint/weak-scaling-0123456789abcdef
#SBATCH --output=/results/alps-daint/weak-scaling-0123456789abcdef/jobs/job-000.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --account=abc123
#SBATCH --partition=normal
#SBATCH --uenv=pytorch/v2.8.0:/user-environment
#SBATCH --view=default

set -eo pipefail
cd /results/alps-daint/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

set -u

export MPICH_GPU_SUPPORT_ENABLED=0
export CUDA_CACHE_DISABLE=1
export NCCL_NET='AWS Libfabric'
export NCCL_CROSS_NIC=0
export NCCL_PXN_DISABLE=1
export NCCL_P2P_LEVEL=NVL
export NCCL_NET_GDR_C2C=1
export NCCL_PROTO='^LL128'
export FI_CXI_RDZV_PROTO=alt_read
export FI_CXI_RDZV_EAGER_SIZE=0
export FI_CXI_RDZV_GET_MIN=0
export FI_CXI_RDZV_THRESHOLD=0
export FI_MR_CACHE_MAX_SIZE=-1
export FI_MR_CACHE_MAX_COUNT=524288

exec "$SCRATCH/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/alps-daint/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=72 '--nodelist=nid[00001-00002]' --kill-on-bad-exit=1 --export=ALL -u python -m dlscale.benchmarks.rank.worker spool/x
