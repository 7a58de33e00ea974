"""Everything that a user, another user or another program can hand to dlscale: a table of targets per kind."""

from tests.fuzz.target import Target

from . import commands, datasets, definitions, machine, own_models, records, results

TARGETS: dict[str, Target] = {
    **records.TARGETS,
    **definitions.TARGETS,
    **datasets.TARGETS,
    **machine.TARGETS,
    **commands.TARGETS,
    **own_models.TARGETS,
    **results.TARGETS,
}
