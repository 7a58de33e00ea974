"""Which variables of a user's environment reach what dlscale starts."""

import pytest

from dlscale.base.variables import BUILD, HELPER, JOB, LAUNCH, passed_on

KEEPS = {"launch": LAUNCH, "job": JOB, "helper": HELPER, "build": BUILD}
# Variables, and what they are passed on to.
VARIABLES = [
    (
        "PATH HOME LANG TMPDIR MY_DATA LS_COLORS LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES",
        "launch job helper build",
    ),
    ("RANKING SLURMISH PYTHONUNBUFFERED", "launch job helper build"),
    ("I_MPI_ROOT FI_PROVIDER_PATH TORCH_HOME CUDA_HOME", "launch job helper build"),
    ("SLURM_JOB_ID PBS_NODEFILE LSB_MCPU_HOSTS COBALT_NODEFILE FLUX_URI PE_HOSTFILE", "job"),
    ("HYDRA_HOST_FILE PMI_RANK PMIX_RANK OMPI_COMM_WORLD_SIZE", "job"),
    (
        "GLOO_SOCKET_IFNAME NCCL_DEBUG UCX_TLS FI_PROVIDER OMPI_MCA_btl LD_PRELOAD MALLOC_ARENA_MAX",
        "job build",
    ),
    ("OMP_PROC_BIND MKL_DYNAMIC TORCH_LOGS TF_XLA_FLAGS GRPC_VERBOSITY", "job build"),
    ("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION HDF5_DRIVER HDF5_VOL_CONNECTOR HWLOC_XMLFILE", "job build"),
    ("USE_LIBUV FBGEMM_ENABLE_INSTRUCTIONS THP_MEM_ALLOC_ENABLE KINETO_CONFIG", "job build"),
    ("HDF5_USE_FILE_LOCKING HDF5_PLUGIN_PATH", "launch job helper build"),
    ("https_proxy HTTP_PROXY grpc_proxy no_proxy ALL_PROXY", "helper build"),
    ("RANK WORLD_SIZE MASTER_ADDR TORCHELASTIC_RUN_ID TF_CONFIG HOROVOD_RANK", ""),
    ("DLSCALE_CPUS_PER_RANK PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONWARNINGS PYTHONOPTIMIZE", ""),
]


@pytest.mark.parametrize("what", KEEPS)
def test_each_process_gets_what_is_meant_for_it(what):
    inherited = dict.fromkeys(" ".join(names for names, _ in VARIABLES).split(), "x")
    expected = {name for names, users in VARIABLES if what in users.split() for name in names.split()}
    assert passed_on(KEEPS[what], inherited).keys() == expected


@pytest.mark.parametrize(
    ("value", "kept"),
    [("/a:/b", "/a:/b"), (":/a", "/a"), ("/a:", "/a"), ("/a:lib:.", "/a"), ("", None), (".", None)],
)
def test_no_entry_of_pythonpath_means_the_working_folder(value, kept):
    assert passed_on(LAUNCH, {"PYTHONPATH": value}).get("PYTHONPATH") == kept
