#!/bin/bash -l
#SBATCH --job-name=weak-scaling-job-000
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=24
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --chdir=/results/piz-daint/weak-scaling-0123456789abcdef
#SBATCH --output=/results/piz-daint/weak-scaling-0123456789abcdef/jobs/job-000.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --account=abc123
#SBATCH --partition=normal
#SBATCH --constraint=gpu

set -eo pipefail
cd /results/piz-daint/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module unload PrgEnv-cray
module load PrgEnv-gnu
module load gcc/5.3.0
module load cudatoolkit/8.0.61_2.4.3-6.0.4.0_3.1__gb475d12
set -u

export OMP_NUM_THREADS=12
export OMP_PLACES=threads
export OMP_PROC_BIND=spread
export CRAY_CUDA_MPS=1
export MPICH_RDMA_ENABLED_CUDA=1

exec "$SCRATCH/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/piz-daint/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=24 '--nodelist=nid[00001-00002]' --kill-on-bad-exit=1 --export=ALL -u python -m dlscale.benchmarks.rank.worker spool/x
