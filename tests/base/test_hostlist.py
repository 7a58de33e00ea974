"""Host lists as Slurm and Flux write them."""

import pytest

from dlscale.base.hostlist import compress_hostlist, expand_hostlist


# What `scontrol show hostnames` prints for the first four.
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nid0000[1-4,7],gpu01", ["nid00001", "nid00002", "nid00003", "nid00004", "nid00007", "gpu01"]),
        ("a[1-2]b[01-03]", ["a1b01", "a1b02", "a1b03", "a2b01", "a2b02", "a2b03"]),
        ("n[001-2]", ["n001", "n002"]),
        ("n[1-3,2]", ["n1", "n2", "n3", "n2"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("cc001.cooley", ["cc001.cooley"]),
        ("[3829-3831,3840]", ["3829", "3830", "3831", "3840"]),
        ("c[1-2]x,n1\n", ["c1x", "c2x", "n1"]),
        ("", []),
    ],
)
def test_expansion(text: str, names: list[str]):
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n[]", "n[3-1]", "n[a-b]", "n1,,n2", "n[1]]", "two words", "n[1 ,2]", "a[1-9999]b[1-9999]"],
)
def test_what_is_no_host_list(text: str):
    with pytest.raises(ValueError, match=r"."):
        expand_hostlist(text)


# What `scontrol show hostlist` prints.
def test_folding():
    names = ["nid00001", "nid00002", "gpu01", "nid00003", "n9", "n10", "n11"]
    assert compress_hostlist(names) == "nid[00001-00002],gpu01,nid00003,n[9-11]"
    for odd in (["n09", "n10", "n9", "n010"], ["12", "13"], ["a1-2", "a1-3", "a"], ["n999", "n1000"], []):
        assert expand_hostlist(compress_hostlist(odd)) == odd
