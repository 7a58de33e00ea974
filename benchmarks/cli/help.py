"""`dlscale help` and `dlscale version`: what the options --help and --version say, for those who type a verb."""

from __future__ import annotations

from importlib.metadata import version as version_of

import click

from dlscale.base.errors import UsageError


@click.command("help")
@click.argument("verbs", metavar="[VERB]...", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, verbs: tuple[str, ...]) -> int:
    """Show the help of dlscale, or of a verb.

    \b
    Examples:
      dlscale help
      dlscale help run
      dlscale help system show
    """  # noqa: D301
    context = ctx.parent or ctx
    for verb in verbs:
        group = context.command
        if not isinstance(group, click.Group):
            raise UsageError(
                f"{context.command_path} has no verbs such as {verb!r}; try: {context.command_path} --help"
            )
        command = group.get_command(context, verb)
        if command is None:
            known = ", ".join(group.list_commands(context))
            raise UsageError(f"no verb {verb!r} in {context.command_path}; choose one of: {known}")
        context = click.Context(
            command, info_name=verb, parent=context, max_content_width=context.max_content_width
        )
    click.echo(context.get_help())
    return 0


@click.command()
def version() -> int:
    """Print the version of dlscale.

    \b
    Example:
      dlscale version
    """  # noqa: D301
    click.echo(f"dlscale, version {version_of('dlscale')}")
    return 0
