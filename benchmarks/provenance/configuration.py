"""The configuration of a study on a system, as its records keep it."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel

from dlscale.benchmarks.provenance.facts import Configuration, Setting
from dlscale.benchmarks.quantities import Count, Quantity, Text
from dlscale.benchmarks.study import Study
from dlscale.benchmarks.system import System, facts


def configuration(study: Study, system: System) -> Configuration:
    """What was asked for, after all defaults."""
    return Configuration(
        study_digest=_digest(study),
        system_digest=_digest(system),
        skip_bad=study.skip_bad,
        budget_seconds=study.budget,
        rules=study.rules.model_dump(),
        fabric=fabric(system),
    )


def fabric(system: System) -> dict[str, Setting]:
    """The network between nodes: what its file states, quantities in base units; empty where it states nothing."""
    found: dict[str, Setting] = {}
    for name, fact in facts(system.fabric) if system.fabric else ():
        if isinstance(fact, Quantity):
            found[name] = fact.number
        elif isinstance(fact, Count | Text):
            found[name] = fact.value
    return found


def _digest(definition: BaseModel) -> str:
    text = json.dumps(definition.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
