"""A Ramble application and a workspace that runs it."""

from __future__ import annotations

import json

from dlscale.benchmarks.export.harness import HarnessRun, fill, one_line
from dlscale.models.errors import UsageError


def ramble_files(run: HarnessRun) -> dict[str, str]:
    """Path below a folder -> content: a repository that has the application, and a workspace's configuration.

    Raises UsageError for words with braces, which Ramble expands wherever they stand.
    """
    name = run.name.replace("_", "-")
    title = one_line(f"{run.study_title} on {run.system_title}")
    command = " ".join(
        run.words(sizes=f"{{n_{run.size_name}}}", backends="{backend}", escape=_without_braces)
    )
    application = fill(
        "ramble_application.py",
        class_name="".join(part.capitalize() for part in name.split("-")),
        name=repr(name),
        title=title,
        command=repr(f"dlscale {command} --compatibility-lines"),
    )
    sizes = json.dumps(list(run.sizes))
    per_node, ranks = str(run.ranks_per_node), "'{n_nodes}*{processes_per_node}'"
    workspace = fill(
        "ramble.yaml",
        name=name,
        title=title,
        size_name=f"n_{run.size_name}",
        backends=json.dumps(list(run.backends)),
        nodes=sizes if run.scheduled else "1",
        ranks=ranks if run.scheduled else sizes,
        per_node=per_node if run.scheduled else "'{n_ranks}'",
    )
    return {
        "repo/repo.yaml": "repo:\n  namespace: dlscale\n",
        f"repo/applications/{name}/application.py": application,
        "ramble.yaml": workspace,
    }


def _without_braces(word: str) -> str:
    if "{" in word or "}" in word:
        raise UsageError(
            f"{word} has braces, which Ramble would expand; leave it out, and add it to ramble.yaml"
        )
    return word
