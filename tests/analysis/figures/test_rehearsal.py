"""The figure of the bound of M33."""

from dlscale.analysis.figures.rehearsal import draw_rehearsal, rehearsal_origin
from dlscale.analysis.findings.bounds import NetworkBound


def test_the_figure_is_the_same_to_the_byte_and_has_its_numbers_beside_it(tmp_path):
    found = [
        NetworkBound(
            num_nodes=nodes,
            num_ranks=nodes,
            compute_seconds=0.01,
            wire_seconds=2 * (nodes - 1) / nodes * 0.0125,
        )
        for nodes in (1, 2, 4, 64)
    ]
    where = rehearsal_origin(found, study="s", system="t", commit="c", command="dlscale run weak-scaling")
    words = {"title": "one", "subtitle": "two", "small_print": ["three"], "provenance": where}
    first = draw_rehearsal(found, tmp_path / "a" / "bounds", **words)
    second = draw_rehearsal(found, tmp_path / "b" / "bounds", **words)
    assert [path.suffix for path in first] == [".png", ".pdf", ".svg", ".csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    lines = first[-1].read_text().splitlines()
    assert lines[0].startswith("num_nodes,num_ranks,compute_seconds,wire_seconds")
    assert lines[3] == f"4,4,0.01,0.01875,0.533333,0.347826,s,{where.data_hash},c,"
    assert lines[1].endswith(",dlscale run weak-scaling")
    assert all(where.line().encode() in path.read_bytes() for path in first[:-1])
    assert (
        where.data_hash
        != rehearsal_origin(found[1:], study="s", system="t", commit="c", command="d").data_hash
    )
