"""Files are written whole, and never where somebody else wants them."""

import os
import stat

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.files import (
    APPENDED,
    locked,
    make_folder,
    open_regular,
    read_end,
    read_regular,
    write_atomically,
)


def test_a_link_with_the_name_that_could_be_guessed_is_not_followed(tmp_path):
    precious, path = tmp_path / "precious", tmp_path / "report.html"
    precious.write_text("mine")
    for name in (f".report.html.{os.getpid()}.tmp", f".probe.{os.getpid()}"):
        (tmp_path / name).symlink_to(precious)
    make_folder(tmp_path)
    write_atomically(path, "page")
    assert precious.read_text() == "mine"
    assert path.read_text() == "page"
    assert not path.is_symlink()


def test_a_file_is_private_and_leaves_nothing_beside_it(tmp_path):
    write_atomically(tmp_path / "a", b"1")
    write_atomically(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_nobody_else_may_write_to_folders_of_results(tmp_path):
    before = os.umask(0)
    try:
        make_folder(tmp_path / "results" / "local" / "study")
    finally:
        os.umask(before)
    for folder in ("results", "results/local", "results/local/study"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o755


def test_a_file_that_cannot_be_replaced_is_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*a: "):
        write_atomically(tmp_path / "a", "1")
    assert os.listdir(tmp_path) == ["a"]


def test_only_regular_files_are_read_and_none_beyond_the_limit(tmp_path):
    path = tmp_path / "whole"
    path.write_bytes(b"12345")
    assert read_regular(path) == b"12345"
    assert read_regular(path, limit=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(path, limit=4)
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path / "fifo", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(other)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing")


def through_a_link(path):
    (path.parent / "precious").write_text("mine")
    path.symlink_to(path.parent / "precious")


@pytest.mark.parametrize("make", [through_a_link, os.mkfifo, os.mkdir], ids=["link", "fifo", "folder"])
def test_nothing_but_a_regular_file_is_opened_where_others_write(tmp_path, make):
    path = tmp_path / "lock"
    make(path)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, APPENDED):
        with pytest.raises(OSError, match=r"symbolic link|not a regular file|directory"):
            open_regular(path, flags)
    with pytest.raises(UsageError, match=r"cannot write .*lock: "), locked(path, held="held"):
        pass
    assert make is not through_a_link or (tmp_path / "precious").read_text() == "mine"
    assert read_end(path) == ""


def test_a_file_that_the_user_named_may_be_a_link(tmp_path):
    path = tmp_path / "named"
    through_a_link(path)
    assert read_regular(path, links=True) == b"mine"
    with pytest.raises(OSError, match="symbolic link"):
        read_regular(path)
