from spack.package import version
from spack_repo.builtin.packages.py_plotext.package import PyPlotext as BuiltinPyPlotext


class PyPlotext(BuiltinPyPlotext):
    """Plots on the terminal; Spack's own package ends before 5.3."""

    version("5.3.2", sha256="52d1e932e67c177bf357a3f0fe6ce14d1a96f7f7d5679d7b455b929df517068e")
