"""A JUBE benchmark of a study."""

from __future__ import annotations

import json

from dlscale.benchmarks.export.harness import HarnessRun, fill, one_line


def jube_file(run: HarnessRun) -> str:
    """The YAML file: a work package for each size and backend. JSON strings are YAML strings."""
    words = run.words(sizes="${size}", backends="${backend}", escape=lambda word: word.replace("$", "$$"))
    return fill(
        "jube.yaml",
        name=run.name,
        title=json.dumps(one_line(f"{run.study_title} on {run.system_title}")),
        size_name=run.size_name,
        sizes=json.dumps(",".join(map(str, run.sizes))),
        backends=json.dumps(",".join(run.backends)),
        command=json.dumps(f"dlscale {' '.join(words)} --compatibility-lines"),
    )
