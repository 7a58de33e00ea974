#!/bin/bash -l
#PBS -N weak-sc-job-000
#PBS -l select=4:ncpus=32:mpiprocs=4
#PBS -l place=scatter:excl
#PBS -l walltime=02:00:00
#PBS -j oe
#PBS -o /results/polaris/weak-scaling-0123456789abcdef/jobs/job-000.log
#PBS -r y
#PBS -A abc123
#PBS -q prod
#PBS -l filesystems=home:eagle
#PBS -v PROJECT

set -eo pipefail
cd /results/polaris/weak-scaling-0123456789abcdef

_DLSCALE_END_TIME=$(($(date +%s) + 7200))
export _DLSCALE_END_TIME

module use /soft/modulefiles
module load conda
conda activate base
export LD_LIBRARY_PATH=/soft/libraries/hwloc/lib/:/soft/libraries/aws-ofi-nccl/v1.9.1-aws/lib:$LD_LIBRARY_PATH
set -u

export CUDA_VISIBLE_DEVICES=3,2,1,0
export NCCL_NET_GDR_LEVEL=PHB
export NCCL_CROSS_NIC=1
export NCCL_COLLNET_ENABLE=1
export NCCL_NET='AWS Libfabric'
export FI_CXI_DISABLE_HOST_REGISTER=1
export FI_MR_CACHE_MONITOR=userfaultfd
export FI_CXI_DEFAULT_CQ_SIZE=131072

exec "/eagle/$PROJECT/dlscale-site/bin/python" -m dlscale.benchmarks.jobs.allocation /results/polaris/weak-scaling-0123456789abcdef job-000

# A launch on two of the nodes:
# env MKL_NUM_THREADS=33 KMP_AFFINITY=granularity=fine,compact,1,0 mpiexec -n 8 --ppn 4 --hosts x3001c0s1b0n0,x3001c0s1b1n0 --depth=8 --cpu-bind=depth --envall --no-transfer python -m dlscale.benchmarks.rank.worker spool/x
