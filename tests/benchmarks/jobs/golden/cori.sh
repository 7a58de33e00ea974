#!/bin/bash -l
#SBATCH --job-name=weak-scaling-job-000
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=272
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --chdir=/results/cori/weak-scaling-0123456789abcdef
#SBATCH --output=/results/cori/weak-scaling-0123456789abcdef/jobs/job-000.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --account=abc123
#SBATCH --constraint=knl,quad,cache
#SBATCH --qos=regular

set -eo pipefail
cd /results/cori/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module load tensorflow/intel-1.8.0-py27
srun --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 --kill-on-bad-exit=1 cp -R "$SCRATCH/dlscale-site" /dev/shm
set -u

export OMP_NUM_THREADS=33
export OMP_PLACES=threads
export OMP_PROC_BIND=spread
export KMP_BLOCKTIME=1
export KMP_SETTINGS=1
export KMP_AFFINITY=granularity=fine,compact,1,0

exec /dev/shm/dlscale-site/bin/python -m dlscale.benchmarks.jobs.allocation /results/cori/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=272 '--nodelist=nid[00001-00002]' --kill-on-bad-exit=1 --export=ALL -u --cpu-bind=cores python -m dlscale.benchmarks.rank.worker spool/x
