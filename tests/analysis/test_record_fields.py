"""Which differences between records are named, and which of them block a comparison."""

import re
import types
import typing

import pytest
from pydantic import BaseModel

from dlscale.analysis.compare import compare_studies
from dlscale.analysis.record_fields import COMPARED, covers, field_at, field_table, short_name, titled
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import Record
from tests.made_records import CONFIGURATION, NODE, make_record, make_study


def paths_of(kind: type[BaseModel], place: str = "") -> list[str]:
    """Where a model's leaves are, as the table of fields writes it."""
    found = []
    for name, member in kind.model_fields.items():
        path = f"{place}.{name}" if place else name
        parts = [member.annotation]
        while typing.get_origin(parts[0]) in (types.UnionType, typing.Union):
            parts = [one for one in typing.get_args(parts[0]) if one is not type(None)]
        origin, arguments = typing.get_origin(parts[0]), typing.get_args(parts[0])
        inner = arguments[0] if origin is list else parts[0]
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += paths_of(inner, f"{path}[]" if origin is list else path)
        else:
            found.append(f"{path}.*" if origin is dict else path)
    return found


def test_every_field_that_is_no_result_has_a_class_or_a_reason_for_none():
    known = [*titled(), *field_table()["not-compared"]]
    for path in (path for path in paths_of(Record) if re.split(r"[.\[]", path)[0] in COMPARED):
        assert any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in known), path


def test_the_table_names_no_field_that_records_do_not_have():
    paths = paths_of(Record)
    for row in (*titled(), *field_table()["not-compared"]):
        exists = any(row == path or path.startswith((f"{row}.", f"{row}[")) for path in paths)
        entry = any(path.endswith(".*") and row.startswith(path[:-1]) for path in paths)
        assert exists or entry, row


def test_what_the_table_says_of_factors_are_fields():
    names = [short_name(path).removesuffix(".*") for path in titled()]
    assert len(set(names)) == len(names)
    rules, follows, groups = (field_table()[name] for name in ("rules", "follows", "groups"))
    told = [name for found in (*follows.values(), *groups.values()) for name in found]
    entries = tuple(short_name(path).removesuffix("*") for path in titled() if path.endswith(".*"))
    for name in (*rules["points"], *follows, *told):
        assert any(covers(name, one) for one in names) or name.startswith(entries), name
    assert {*rules["ranges"]} <= {*titled()}


def test_an_entry_whose_name_has_dots_belongs_to_its_dictionary():
    found = field_at("environment_variables.A.B")
    assert (found.kind, found.title) == ("warn", "variable A.B")
    assert field_at("environment_variables.DLSCALE_NUM_WORKERS") is None
    with pytest.raises(KeyError):
        field_at("case.cell.nonsense")


def names(comparison):
    return [*comparison.differences["factor"]]


def only(rows):
    (row,) = rows.to_dict("records")
    return row


def test_the_same_study_measured_again_is_comparable():
    comparison = compare_studies(make_study(), make_study())
    assert names(comparison) == []
    assert comparison.factors == ["backend", "num_ranks"]
    assert len(comparison.points) == 8


OTHER = {
    "precision": "bf16",
    "data": "other.h5:0123",
    "local_batch": 4,
    "workload": "cosmogan",
    "cores_per_rank": 2,
}


@pytest.mark.parametrize(("changed", "value"), [*OTHER.items(), ("evidence", "emulated")])
def test_other_trainings_are_not_comparable(changed, value):
    a, b = make_study(num_blocks=1), make_study(num_blocks=1, **{changed: value})
    comparison = compare_studies(a, b)
    assert [*comparison.blocking["factor"]] == names(comparison)[:1] == [changed]  # blocking ones come first
    assert names(compare_studies(a, b, factors=[changed, "backend", "num_ranks"])) == []


def test_settings_are_compared_with_those_of_the_same_backend():
    a = [make_record(backend="ring", overlap=True), make_record(backend="mpi", overlap=False)]
    b = [make_record(backend="ring", overlap=False), make_record(backend="mpi", overlap=True)]
    found = only(compare_studies(a, b).differences)  # as sets, both sides have True and False
    assert (found["factor"], found["a"], found["b"]) == (
        "backend_settings.overlap",
        [False, True],
        [False, True],
    )
    assert (found["num_points"], found["of_points"]) == (2, 2)
    found = only(compare_studies(a, [a[0], b[1]]).differences)
    assert (found["a"], found["b"], found["num_points"]) == ([False], [True], 1)


def test_points_of_one_side_alone_are_named_and_no_difference():
    comparison = compare_studies(make_study(), make_study(efficiency={"ring": (1, 1), "none": (1, 1)}))
    assert (names(comparison), comparison.only_b) == ([], [])
    assert comparison.only_a == [("gloo", 1), ("gloo", 2), ("mpi", 1), ("mpi", 2)]


def test_what_follows_from_a_declared_factor_is_no_difference():
    one, two, ring = make_record(), make_record(num_ranks=2), make_record(backend="ring", overlap=True)
    elsewhere = make_record(backend="mpi", environment="x")
    # The global batch follows from the batch per rank, which weak scaling holds constant.
    for a, b, differing, factor in (
        (one, two, {"num_ranks", "ranks.affinity"}, "ranks"),
        (ring, one, {"backend", "backend_settings.overlap"}, "backend"),
        (ring, elsewhere, {"backend", "environment"}, "environment,backend"),
    ):
        comparison = compare_studies([a], [b])
        assert differing <= set(names(comparison))
        assert names(compare_studies([a], [b], factors=factor.split(","))) == []


def test_declared_factors_take_the_place_of_those_inside():
    small, large = make_study(), make_study(rank_counts=(4, 8))
    assert compare_studies(small, large).blocking.empty
    found = compare_studies(small, large, factors=["backend"])
    assert [*found.blocking["factor"]] == ["num_ranks"]
    # Where some points are common these are compared, and nothing else is.
    some = compare_studies(small, make_study(rank_counts=(1, 8)), factors=["backend"])
    assert (names(some), len(some.points), len(some.only_b)) == ([], 4, 4)


def test_factors_are_fields():
    with pytest.raises(UsageError, match="no factor 'bakcend'; choose from ranks"):
        compare_studies([make_record()], [make_record()], factors=["bakcend"])
    for name in ("code", "versions.torch", "fingerprint.versions", "nodes.cpu_governor", "case.cell.data"):
        assert compare_studies([make_record()], [make_record()], factors=[name]).blocking.empty


def configured(record, **changes):
    return record.model_copy(update={"configuration": CONFIGURATION.model_copy(update=changes)})


@pytest.mark.parametrize(("num_nodes", "blocks"), [(1, False), (2, True)])
def test_the_fabric_blocks_where_several_nodes_used_it(num_nodes, blocks):
    record = make_record(num_ranks=2, num_nodes=num_nodes)
    slow = configured(record, fabric={"bandwidth": 8e9})
    # A fabric that one side does not state is as good as another one.
    for other in (configured(record, fabric={"bandwidth": 25e9}), configured(record, fabric={})):
        found = only(compare_studies([slow], [other]).differences)
        assert (found["class"], found["blocks"]) == ("blocking-warn", blocks)


def test_rules_block_a_commit_warns_and_what_is_not_recorded_is_not_taken_for_equal():
    record = make_record()
    ten = configured(record)
    fewer = configured(record, rules=CONFIGURATION.rules | {"min_windows": 3})
    assert [*compare_studies([ten], [fewer]).blocking["title"]] == ["rule min_windows"]
    assert "rules.min_windows" in [*compare_studies([ten], [record]).blocking["factor"]]
    code = record.fingerprint.model_copy(update={"commit": "abc+dirty"})
    comparison = compare_studies([record], [record.model_copy(update={"fingerprint": code})])
    assert comparison.blocking.empty
    assert names(comparison) == ["commit"]


def test_values_that_never_repeat_differ_where_their_ranges_do_not_touch():
    def loaded(*loads):
        nodes = [NODE.model_copy(update={"load_before": load}) for load in loads]
        return [make_record(block=n).model_copy(update={"nodes": [node]}) for n, node in enumerate(nodes)]

    assert names(compare_studies(loaded(0.1, 0.5), loaded(0.4, 9.0))) == []
    found = only(compare_studies(loaded(0.1, 0.5), loaded(0.6, 9.0)).differences)
    assert (found["class"], found["a"], found["b"]) == ("information", [0.1, 0.5], [0.6, 9.0])


def test_nodes_are_compared_as_lists():
    slow = NODE.model_copy(update={"cpu_governor": "powersave"})
    a, b = (make_record().model_copy(update={"nodes": [NODE, other]}) for other in (NODE, slow))
    found = only(compare_studies([a], [b]).differences)
    assert (found["factor"], found["a"]) == ("nodes.cpu_governor", ["performance"])
    assert found["b"] == [("performance", "powersave")]
