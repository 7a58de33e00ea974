"""`dlscale export`: a study's records and numbers in the forms that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlscale.benchmarks.commands.export_formats import lines, mllog
from dlscale.benchmarks.commands.export_pack import pack, pack_study, unpack, unpack_study
from dlscale.benchmarks.commands.export_tables import extrap, markdown, tidy
from dlscale.benchmarks.commands.export_tests import jube, ramble, reframe
from dlscale.benchmarks.commands.options import results_option
from dlscale.models.errors import UsageError

# An option that may stand without a value: the latest study.
STUDY: dict[str, Any] = {"is_flag": False, "flag_value": "", "metavar": "[STUDY]"}


@click.group(invoke_without_command=True)
@click.option("--pack", "to_pack", **STUDY, help="As `dlscale export pack`.")
@click.option("--unpack", "to_unpack", **STUDY, help="As `dlscale export unpack`.")
@results_option
@click.pass_context
def export(context: click.Context, to_pack: str | None, to_unpack: str | None, results: Path) -> int:
    """Put a study's records and numbers into other forms.

    \b
    Examples:
      dlscale export --pack                  the latest study's records in one Parquet file
      dlscale export --pack weak-scaling
      dlscale export --unpack weak-scaling   the same records as files again
      dlscale export tidy --format parquet   tables of launches and windows
      dlscale export markdown                the report's table for GitHub
    """  # noqa: D301
    given = [name for name in context.params if context.get_parameter_source(name) is not _DEFAULT]
    if context.invoked_subcommand:
        if given:
            raise UsageError(
                f"options before {context.invoked_subcommand} are not for it; put them after it, as in: "
                f"dlscale export {context.invoked_subcommand} --results {results}"
            )
        return 0
    if (to_pack is None) == (to_unpack is None):
        raise UsageError("dlscale export needs one of --pack, --unpack or a form; see dlscale export --help")
    if to_pack is not None:
        return pack_study(to_pack or None, results)
    return unpack_study(to_unpack or None, results)


_DEFAULT = click.core.ParameterSource.DEFAULT

for command in (pack, unpack, tidy, markdown, extrap, mllog, lines, reframe, jube, ramble):
    export.add_command(command)
