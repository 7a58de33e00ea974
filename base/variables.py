"""What of a user's environment reaches the processes that dlscale starts.

A shell, a module, a scheduler or an outer launcher may have set anything. What a library of ours reads passes only as
the lists below say; all else a launch is told by its command line, so that it runs alike wherever it is started.
Variables that no library of ours reads pass: a user's own model may.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

Group = Literal["scheduler", "launcher", "tuning", "place", "proxy", "python"]

# Names, and beginnings of names, which end in _.
_GROUPS: dict[Group, str] = {
    # Where the processes of a job are, and how they find each other.
    "scheduler": """
        SLURM_ SLURMD_ SRUN_ SBATCH_ SALLOC_ PBS_ TORQUE_ LSB_ LSF_ JSM_ COBALT_ FLUX_ SGE_ PE_HOSTFILE NSLOTS NHOSTS
        LOADL_ OAR_ ALPS_ APRUN_ PALS_ PMI_ PMI2_ PMIX_ HYDRA_ HYDI_ MPIEXEC_ MPIRUN_ MPI_LOCALRANKID MPI_LOCALNRANKS
        OMPI_ PRTE_ PRRTE_ ORTE_ MV2_COMM_ MVP_COMM_ HYDSERV_
    """,
    # The same of launchers that do not start what dlscale starts, and what dlscale tells its own ranks.
    "launcher": """
        TORCHELASTIC_ MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE
        ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE NODE_RANK CROSS_RANK CROSS_SIZE LOCAL_SIZE TF_CONFIG CLUSTER_SPEC
        TPU_ CLOUD_TPU_ MEGASCALE_
        HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_ HOROVOD_CROSS_ HOROVOD_HOSTNAME HOROVOD_RENDEZVOUS_ HOROVOD_GLOO_
        HOROVOD_CONTROLLER DLSCALE_
    """,
    # How libraries do their work.
    "tuning": """
        OMP_ GOMP_ KMP_ LIBOMP_ MKL_ OPENBLAS_ GOTO_ BLIS_ BLAS_ VECLIB_ NUMEXPR_ TBB_ DNNL_ ONEDNN_ NPY_ NUMPY_
        MPICH_ MPIR_ MPIO_ ROMIO_ ADIOI_ YAKSA_ HWLOC_ MPI4PY_ OMPI_MCA_ PMIX_MCA_ PRTE_MCA_ OPAL_ I_MPI_ MV2_ MVP_
        UCX_ UCC_ FI_ OFI_ PSM2_ PSM3_ IBV_ MLX4_ MLX5_ RDMAV_ HCOLL_ SHARP_ NCCL_ GLOO_ TP_SOCKET_IFNAME CCL_ HOROVOD_
        GRPC_ TORCH_ TORCHINDUCTOR_ TORCHDYNAMO_ PYTORCH_ ATEN_ C10_ THP_MEM_ALLOC_ENABLE USE_LIBUV DDP_ FBGEMM_ KINETO_
        AOT_INDUCTOR_ AOTINDUCTOR_ INDUCTOR_ TRITON_ CUTLASS_ HALIDE_ TVM_ LTC_ FX_ TF_ TF2_ XLA_ KERAS_ AUTOGRAPH_
        DTENSOR_ ABSL_ PROTOCOL_BUFFERS_ HDF5_ SCIPY_ INTEL_ISA_DISABLE INTEL_LIBITTNOTIFY64 INTEL_JIT_PROFILER64
        CUDA_ CUDNN_ CUBLAS_ CUPTI_ NVSHMEM_ NVIDIA_ HIP_ HSA_ ROCR_ MIOPEN_ SYCL_ ZE_ ONEAPI_
        MALLOC_ TCMALLOC_ GLIBC_TUNABLES LD_
    """,
}
# Of the tuning: names that say where a library or its files lie end so.
_PLACES = ("_ROOT", "_HOME", "_DIR", "_DIRECTORY", "_PATH", "_PREFIX")
# Passed on always: which devices are left to this program, and what no number depends on.
_KEPT = """
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES HIP_VISIBLE_DEVICES
    ROCR_VISIBLE_DEVICES DLSCALE_CONTAINER LD_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX
    PYTHONUNBUFFERED PYTHONFAULTHANDLER PYTHONIOENCODING PYTHONUTF8 PYTHONCOERCECLOCALE PYTHONNOUSERSITE PYTHONUSERBASE
    HDF5_USE_FILE_LOCKING
"""
_BEGINNINGS: dict[str, Group | None] = {
    **{name: group for group, names in _GROUPS.items() for name in names.split()},
    **dict.fromkeys(_KEPT.split()),
}

LAUNCH: frozenset[Group] = frozenset({"place"})  # ranks on this machine
JOB: frozenset[Group] = LAUNCH | {"scheduler", "tuning"}  # in a job: what scheduler and modules set
HELPER: frozenset[Group] = LAUNCH | {"proxy"}  # a process that talks to no other one
BUILD: frozenset[Group] = LAUNCH | {"tuning", "proxy"}  # pip and compilers


def passed_on(keeps: Collection[Group], inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that keeps these groups of what was inherited, by default by this process."""
    kept = {}
    for name, value in (os.environ if inherited is None else inherited).items():
        # The name, then its beginnings that end in _, the longest first.
        parts = [name, *(name[:end] for end in range(len(name) - 1, 0, -1) if name[end - 1] == "_")]
        default: Group | None = "python" if name.startswith("PYTHON") else None
        group = next((_BEGINNINGS[part] for part in parts if part in _BEGINNINGS), default)
        if name.lower().endswith("_proxy"):
            group = "proxy"
        elif group == "tuning" and name.endswith(_PLACES):
            group = "place"
        if group in (None, *keeps):
            kept[name] = value
    # A relative folder would be the working folder or one in it, with whatever lies there.
    folders = [folder for folder in kept.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return kept | ({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})


def without_working_folder(folders: Iterable[str]) -> list[str]:
    """Of `sys.path`, all but what relative folders of PYTHONPATH mean: the working folder, or one in it."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    relative = {os.path.abspath(folder) for folder in named if not os.path.isabs(folder)}
    return [folder for folder in folders if os.path.abspath(folder) not in relative]
