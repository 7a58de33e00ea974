"""What a record keeps of the configuration: the study by digest, rules, and the network as it is stated."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel

from dlscale.base.quantities import Count, Quantity, TextFact
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.record import Configuration
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import System, facts


def configuration(study: Study, system: System) -> Configuration:
    """What was asked for, after all defaults."""
    return Configuration(
        study_digest=definition_digest(study),
        budget_seconds=study.budget,
        rules=study.rules.model_dump(),
        fabric=stated_fabric(system),
    )


def stated_fabric(system: System) -> dict[str, Setting]:
    """The network between nodes: what its file states, quantities in base units; empty where it states nothing."""
    stated: dict[str, Setting] = {}
    for name, fact in facts(system.fabric) if system.fabric else ():
        if isinstance(fact, Quantity):
            stated[name] = fact.number
        elif isinstance(fact, Count | TextFact):
            stated[name] = fact.value
    return stated


def definition_digest(definition: BaseModel) -> str:
    """The first 12 hexadecimal digits of SHA-256 over all values, by which studies are told apart."""
    text = json.dumps(definition.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
