"""Checks of an environment from outside: what its Python reports, and whether its parts match."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, flavour_of
from dlscale.base.launching.pals import is_pals
from dlscale.base.redaction import SECRET, redact
from dlscale.base.variables import HELPER, passed_on, shadowing
from dlscale.benchmarks.launch.asking import PROBE_SECONDS, NoAnswerError, ask
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.systems.system import DETECT, Installation, System

# Variables of a user's environment that change what runs. No others are recorded, whatever they begin with: what a
# variable is called that holds a secret, nobody knows.
_RECORDED = """
    OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_DYNAMIC OMP_SCHEDULE OMP_WAIT_POLICY OMP_STACKSIZE
    OMP_THREAD_LIMIT OMP_MAX_ACTIVE_LEVELS OMP_NESTED GOMP_CPU_AFFINITY GOMP_SPINCOUNT KMP_AFFINITY KMP_BLOCKTIME
    KMP_HW_SUBSET KMP_SETTINGS KMP_STACKSIZE KMP_TOPOLOGY_METHOD MKL_NUM_THREADS MKL_DYNAMIC MKL_CBWR
    MKL_ENABLE_INSTRUCTIONS MKL_DEBUG_CPU_TYPE MKL_THREADING_LAYER MKL_INTERFACE_LAYER OPENBLAS_NUM_THREADS
    OPENBLAS_CORETYPE OPENBLAS_MAIN_FREE ONEDNN_MAX_CPU_ISA ONEDNN_DEFAULT_FPMATH_MODE
    ONEDNN_PRIMITIVE_CACHE_CAPACITY MALLOC_ARENA_MAX MALLOC_MMAP_MAX_ MALLOC_MMAP_THRESHOLD_ MALLOC_TOP_PAD_
    MALLOC_TRIM_THRESHOLD_ MALLOC_CONF GLIBC_TUNABLES MPICH_ASYNC_PROGRESS MPICH_MAX_THREAD_SAFETY
    MPICH_GPU_SUPPORT_ENABLED MPICH_RDMA_ENABLED_CUDA MPICH_OFI_NIC_POLICY MPICH_OFI_NIC_MAPPING
    MPICH_OFI_NUM_NICS MPICH_OFI_CXI_COUNTER_REPORT MPICH_SMP_SINGLE_COPY_MODE MPICH_SMP_SINGLE_COPY_SIZE
    MPICH_ALLREDUCE_NO_SMP MPICH_ALLREDUCE_BLK_SIZE MPICH_COLL_SYNC MPICH_COLL_OPT_OFF MPICH_SHARED_MEM_COLL_OPT
    MPICH_NEMESIS_ASYNC_PROGRESS MPICH_RANK_REORDER_METHOD MPICH_CPUMASK_DISPLAY MPICH_USE_DMAPP_COLL
    MPICH_GNI_ASYNC_PROGRESS_TIMEOUT MPIR_CVAR_NOLOCAL MPIR_CVAR_ODD_EVEN_CLIQUES MPIR_CVAR_CH4_NETMOD
    MPIR_CVAR_CH4_SHM MPIR_CVAR_CH4_NUM_VCIS MPIR_CVAR_CH4_OFI_MAX_VCIS MPIR_CVAR_OFI_USE_PROVIDER
    MPIR_CVAR_ASYNC_PROGRESS MPIR_CVAR_RMA_PASSIVE MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM
    MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE MPIR_CVAR_BCAST_INTRA_ALGORITHM MPIR_CVAR_DEVICE_COLLECTIVES
    MPIR_CVAR_COLL_ALGORITHMS MPIR_CVAR_ENABLE_SMP_COLLECTIVES MPIR_CVAR_ENABLE_SMP_ALLREDUCE MPIR_CVAR_ENABLE_GPU
    I_MPI_FABRICS I_MPI_OFI_PROVIDER I_MPI_PIN I_MPI_PIN_DOMAIN I_MPI_PIN_ORDER I_MPI_PIN_CELL
    I_MPI_ADJUST_ALLREDUCE I_MPI_ADJUST_BCAST I_MPI_ASYNC_PROGRESS I_MPI_SHM I_MPI_THREAD_SPLIT I_MPI_WAIT_MODE
    I_MPI_ROOT I_MPI_COLL_INTRANODE I_MPI_HYDRA_BOOTSTRAP OMPI_MCA_btl OMPI_MCA_pml OMPI_MCA_mtl OMPI_MCA_osc
    OMPI_MCA_coll OMPI_MCA_btl_tcp_if_include OMPI_MCA_btl_tcp_if_exclude OMPI_MCA_btl_vader_single_copy_mechanism
    OMPI_MCA_coll_hcoll_enable OMPI_MCA_coll_tuned_use_dynamic_rules OMPI_MCA_coll_tuned_allreduce_algorithm
    OMPI_MCA_mpi_yield_when_idle OMPI_MCA_mpi_leave_pinned OMPI_MCA_rmaps_base_oversubscribe
    OMPI_MCA_hwloc_base_binding_policy UCX_TLS UCX_NET_DEVICES UCX_RNDV_THRESH UCX_RNDV_SCHEME UCX_ZCOPY_THRESH
    UCX_MAX_RNDV_RAILS UCX_MAX_EAGER_RAILS UCX_IB_GPU_DIRECT_RDMA UCX_IB_SL UCX_IB_TRAFFIC_CLASS UCX_IB_GID_INDEX
    UCX_KEEPALIVE_INTERVAL UCX_MEMTYPE_CACHE UCX_SHM_DEVICES UCX_POSIX_USE_PROC_LINK UCX_PROTO_ENABLE
    UCX_UNIFIED_MODE UCX_WARN_UNUSED_ENV_VARS UCC_TLS FI_PROVIDER FI_PROVIDER_PATH FI_TCP_IFACE FI_SOCKETS_IFACE
    FI_VERBS_IFACE FI_OFI_RXM_USE_SRX FI_EFA_USE_DEVICE_RDMA FI_EFA_FORK_SAFE FI_CXI_RX_MATCH_MODE
    FI_CXI_DEFAULT_CQ_SIZE FI_CXI_RDZV_THRESHOLD FI_CXI_DISABLE_HOST_REGISTER FI_CXI_RDZV_PROTO
    FI_MR_CACHE_MONITOR FI_MR_CACHE_MAX_COUNT FI_MR_CACHE_MAX_SIZE FI_HMEM FI_UNIVERSE_SIZE FI_THREAD FI_LOG_LEVEL
    PSM2_MULTIRAIL PSM3_MULTIRAIL PSM3_NIC PSM3_DEVICES NCCL_ALGO NCCL_PROTO NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS
    NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_NTHREADS NCCL_BUFFSIZE NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_NTHREADS
    NCCL_SOCKET_IFNAME NCCL_SOCKET_FAMILY NCCL_IB_HCA NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_TC NCCL_IB_SL
    NCCL_IB_TIMEOUT NCCL_IB_RETRY_CNT NCCL_IB_QPS_PER_CONNECTION NCCL_IB_ADAPTIVE_ROUTING
    NCCL_IB_PCI_RELAXED_ORDERING NCCL_NET NCCL_NET_PLUGIN NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ
    NCCL_NET_SHARED_BUFFERS NCCL_CROSS_NIC NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_P2P_NET_CHUNKSIZE NCCL_SHM_DISABLE
    NCCL_NVLS_ENABLE NCCL_COLLNET_ENABLE NCCL_CUMEM_ENABLE NCCL_GRAPH_REGISTER NCCL_LAUNCH_MODE NCCL_DEBUG
    NCCL_DEBUG_SUBSYS NCCL_TOPO_FILE NCCL_TUNER_PLUGIN NCCL_ASYNC_ERROR_HANDLING GLOO_SOCKET_IFNAME
    TP_SOCKET_IFNAME CCL_ATL_TRANSPORT CCL_ALLREDUCE CCL_BCAST CCL_WORKER_COUNT CCL_WORKER_AFFINITY CCL_MNIC
    CCL_MNIC_COUNT CCL_FUSION CCL_LOG_LEVEL CCL_ROOT CCL_PROCESS_LAUNCHER CCL_ZE_IPC_EXCHANGE
    HOROVOD_FUSION_THRESHOLD HOROVOD_CYCLE_TIME HOROVOD_CACHE_CAPACITY HOROVOD_AUTOTUNE HOROVOD_AUTOTUNE_LOG
    HOROVOD_HIERARCHICAL_ALLREDUCE HOROVOD_HIERARCHICAL_ALLGATHER HOROVOD_CPU_OPERATIONS
    HOROVOD_MPI_THREADS_DISABLE HOROVOD_NUM_NCCL_STREAMS HOROVOD_BATCH_D2D_MEMCOPIES HOROVOD_DISABLE_GROUP_FUSION
    HOROVOD_LOG_LEVEL HOROVOD_STALL_CHECK_DISABLE HOROVOD_TIMELINE HOROVOD_TIMELINE_MARK_CYCLES
    HOROVOD_THREAD_AFFINITY HOROVOD_TORCH_PIN_MEMORY HOROVOD_ENABLE_ASYNC_COMPLETION HOROVOD_ADASUM_MPI_CHUNK_SIZE
    HOROVOD_CCL_CACHE TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_AVOID_RECORD_STREAMS
    TORCH_NCCL_ENABLE_TIMING TORCH_NCCL_HIGH_PRIORITY TORCH_DISTRIBUTED_DEBUG TORCH_SHOW_CPP_STACKTRACES
    TORCH_CUDNN_V8_API_DISABLED TORCH_COMPILE_DISABLE TORCH_LOGS TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_FREEZING
    TORCHDYNAMO_DISABLE PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HSA_ENABLE_SDMA
    XLA_FLAGS JAX_PLATFORMS XLA_PYTHON_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_PREALLOCATE TF_CPP_MIN_LOG_LEVEL
    TF_CUDNN_USE_AUTOTUNE TF_CUDNN_DETERMINISTIC TF_DETERMINISTIC_OPS TF_ENABLE_ONEDNN_OPTS
    TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_ALLOCATOR TF_GPU_THREAD_COUNT TF_GPU_THREAD_MODE TF_NUM_INTEROP_THREADS
    TF_NUM_INTRAOP_THREADS TF_USE_LEGACY_KERAS TF_XLA_FLAGS DLSCALE_CONTAINER DLSCALE_CORES_PER_RANK
    DLSCALE_NUM_WORKERS
"""
RECORDED = frozenset(_RECORDED.split())


def probe(
    installation: Installation,
    pairs: Iterable[tuple[str, str]] = (),
    options: Mapping[str, Mapping[str, Setting]] | None = None,
) -> Probe:
    """The report of an environment's own Python, with the (backend, framework) pairs that are usable there.

    `options` are those that backends will be given, by backend.

    Raises UsageError if dlscale is not installed there, or a framework is not the one whose version is recorded.
    """
    asked = ("/".join(pair) + _asked(pair[0], options or {}) for pair in pairs)
    try:
        (report,) = ask(
            installation.python,
            "benchmarks.launch.probe",
            *asked,
            answer=Probe,
            variables=installation.variables,
        )
    except NoAnswerError as error:
        what = f"environment {installation.name}: its Python cannot import dlscale and what it uses ({error})"
        if first := shadowing(error.files):
            raise UsageError(f"{what}; PYTHONPATH puts {redact(first)} first: unset it there") from None
        raise UsageError(f"{what}; reinstall dlscale there") from None
    for framework, file in report.misplaced.items():
        raise UsageError(
            f"environment {installation.name}: {framework} would be {redact(file)}, which PYTHONPATH puts first and "
            "which has no version; unset PYTHONPATH there, or install it"
        )
    return report


def _asked(backend: str, options: Mapping[str, Mapping[str, Setting]]) -> str:
    return f"?{json.dumps(dict(options[backend]))}" if options.get(backend) else ""


def mpi_threads(installation: Installation) -> str | None:
    """The thread level that an environment's MPI provides, by MPI's name; None if MPI does not start."""
    program = (
        "from mpi4py import MPI; "
        "print({getattr(MPI, n): n for n in dir(MPI) if n.startswith('THREAD_')}[MPI.Query_thread()])"
    )
    done = subprocess.run(
        [str(installation.python), "-P", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROBE_SECONDS,
        env=passed_on(HELPER) | installation.variables,
    )
    return f"MPI_{done.stdout.strip()}" if done.returncode == 0 else None


def with_found_launcher(system: System, installation: Installation, report: Probe) -> tuple[System, str]:
    """The system with the launcher that starts its ranks, and a line on one that stands in for mpiexec.

    Raises UsageError where nothing starts them.
    """
    problem = report.mpi_problem or ("" if installation.mpiexec.exists() else "no mpiexec")
    if system.launcher != DETECT:
        found = system.launcher
    elif not problem or "torch" not in report.frameworks:
        found = "mpiexec"
    else:
        found = "torchrun"
    if not LAUNCHERS[found].needs_mpi and "torch" not in report.frameworks:
        raise UsageError(
            f"environment {installation.name} has no torch, whose {found} would start its ranks; "
            f"{framework_remedy('torch')} there, or choose another launcher"
        )
    line = ""
    if found != system.launcher and problem:
        line = (
            f"environment {installation.name} has no MPI that starts ranks ({problem}): {found} does, without MPI; for "
            "backends over MPI: pip install 'dlscale[mpich]' there"
        )
    return system.model_copy(update={"launcher": found}), line


def check_mpi(installation: Installation, report: Probe, *, launcher: str = "mpiexec") -> Flavour:
    """The MPI that both mpiexec and mpi4py use; mpi4py's where a system has another launcher.

    Raises UsageError if they differ or one is unusable.
    """
    if report.mpi is None:
        raise UsageError(
            f"environment {installation.name}: mpi4py finds no MPI ({report.mpi_problem}); "
            "install one there, e.g. with: pip install 'dlscale[mpich]'"
        )
    if launcher != "mpiexec":
        return _check_declared(installation, report.mpi, "mpi4py uses")
    if not installation.mpiexec.exists():
        raise UsageError(
            f"environment {installation.name} has no mpiexec at {redact(str(installation.mpiexec))}; "
            "install one there, e.g. with: pip install 'dlscale[mpich]'"
        )
    return _check_mpiexec(installation, report.mpi)


def _check_declared(installation: Installation, mpi: Flavour, finder: str) -> Flavour:
    if installation.mpi not in ("detect", mpi):
        raise UsageError(
            f"environment {installation.name} was declared with {installation.mpi}, but {finder} "
            f"{mpi}; correct `mpi` in the system's TOML file or install {installation.mpi} there"
        )
    return mpi


def _check_mpiexec(installation: Installation, mpi: Flavour) -> Flavour:
    done = subprocess.run(
        [str(installation.mpiexec), "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    launcher = flavour_of(done.stdout + done.stderr)
    if launcher is None:
        text = (done.stdout + done.stderr).strip()
        pals = 'write launcher = "pals" into the system\'s file, or ' if is_pals(text) else ""
        raise UsageError(
            f"environment {installation.name}: mpiexec is of {'PALS' if pals else 'an MPI that dlscale does not know'} "
            f"({text[:60]!r}); {pals}use one of MPICH, Intel MPI or Open MPI"
        )
    if mpi != launcher:
        raise UsageError(
            f"environment {installation.name}: mpiexec is of {launcher}, but mpi4py uses {mpi}; "
            f"use the mpiexec that belongs to {mpi}"
        )
    return _check_declared(installation, launcher, "its mpiexec is of")


def check_frameworks(installation: Installation, report: Probe, wanted: Iterable[str]) -> None:
    """Raises UsageError unless the environment has all of the frameworks."""
    for framework in wanted:
        if framework not in report.frameworks:
            raise UsageError(
                f"environment {installation.name} has no {framework} (it has: "
                f"{', '.join(report.frameworks) or 'none'}); {framework_remedy(framework)} there"
            )


def framework_remedy(framework: str) -> str:
    """The command that installs a framework."""
    return "pip install torch" if framework == "torch" else f"pip install 'dlscale[{framework}]'"


def recorded_variables(variables: Mapping[str, str], *, own: Mapping[str, str]) -> dict[str, str]:
    """The inherited variables on the list, and all that dlscale itself sets, with home folder and user name redacted.

    What it sets are the names of the system's file, of the study and of its user; none that looks like a secret.
    """
    recorded = {name: value for name, value in variables.items() if name in RECORDED} | dict(own)
    return {name: redact(value) for name, value in sorted(recorded.items()) if not SECRET.search(name)}


def combine(*digests: str) -> str:
    """Eight hex digits that change with any of the digests."""
    return hashlib.sha256("-".join(digests).encode()).hexdigest()[:8]


def commit() -> str:
    """The commit of the checkout this code runs from, with "+dirty" if changed; "unknown" outside a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                text=True,
                check=False,
                env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            )
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside another repository, which does not track it.
    if not git("ls-files", "--error-unmatch", Path(__file__).name):
        return "unknown"
    head = git("rev-parse", "HEAD") or "unknown"
    return head + ("+dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
