from spack.package import version
from spack_repo.builtin.packages.py_rich_click.package import PyRichClick as BuiltinPyRichClick


class PyRichClick(BuiltinPyRichClick):
    """Help texts with rich's panels; Spack's own package ends before 1.9."""

    version("1.9.9", sha256="324cba7513cd4187ee92b2eef21f071714e45be062458c8b157bd7e0c81103e3")
