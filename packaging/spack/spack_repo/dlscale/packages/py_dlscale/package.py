import os

from spack.package import default_args, depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyDlscale(PythonPackage):
    """Measures how distributed deep-learning training scales over interchangeable communication backends."""

    # `make dist` writes the archive: spack install is given its folder, or a mirror that has it.
    manual_download = True
    url = f"file://{os.getcwd()}/dlscale-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("tensorflow", default=False, description="Train in TensorFlow too")
    variant("horovod", default=False, description="Train over Horovod")

    with default_args(type="build"):
        depends_on("c")
        depends_on("cxx")
        depends_on("cmake@3.18:")
        depends_on("ninja")
        depends_on("py-nanobind@2.4:")
        depends_on("py-scikit-build-core@0.11:")

    depends_on("mpi")
    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-click@8.1:")
        depends_on("py-h5py@3.10:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-matplotlib@3.9:")
        depends_on("py-mpi4py@4.0:")
        depends_on("py-msgspec@0.19:")
        depends_on("py-numpy@1.26:")
        depends_on("py-nvidia-ml-py@12.535:")
        depends_on("py-pandas@2.2:")
        depends_on("py-plotext@5.3:5")
        depends_on("py-plotly@6.0:")
        depends_on("py-psutil@5.9:")
        depends_on("py-py-cpuinfo@9.0:")
        depends_on("py-pydantic@2.12:")
        depends_on("py-rich@13.7:")
        depends_on("py-rich-click@1.9:")
        depends_on("py-safetensors@0.5:")
        depends_on("py-scipy@1.12:")
        depends_on("py-tomlkit@0.13:")
        depends_on("py-torch@2.4:+distributed+gloo")
        depends_on("py-tensorflow@2.16:", when="+tensorflow")
        depends_on("py-horovod@0.28.1: controllers=mpi tensor_ops=mpi", when="+horovod")

    def config_settings(self, spec, prefix):
        """Make an installation without the native ring an error, and compile it with this MPI."""
        return {"cmake.define.DLSCALE_WITH_MPI": "ON", "cmake.define.MPI_CXX_COMPILER": spec["mpi"].mpicxx}
