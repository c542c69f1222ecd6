from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rec_summary.records.reading.runs import DEEPEST, find_runs
from rec_summary.records.remote import NotFoundError
from rec_summary.series.discovery.directory_watch import DirectoryWatch
from rec_summary.series.discovery.run_poller import RunPoller
from tests.support.record_dirs import event, scalar, summary_name, write_segment
from tests.support.stores import store_in_memory
from tests.support.waiting import Clock


class Watch(DirectoryWatch):
    """Watches directories of given file systems, and notes which ones a poll checks.

    Attributes:
        checked: The directories of a large tree that were to be watched.
    """

    def __init__(self, path: Path, *devices: int, most: int = 1000) -> None:
        self._path, self._most = path, most
        self.checked: list[str] = []
        self.mount(*devices)
        super().__init__(str(path))

    def mount(self, *devices: int) -> None:
        """Says which file systems there are from now on."""
        numbers = (f"{os.major(device)}:{os.minor(device)}" for device in devices)
        self._path.write_text("".join(f"1 1 {each} / / rw - ext4 dev rw\n" for each in numbers))

    def add(self, path: str, device: int) -> bool:
        self.checked.append(path)
        return len(self) < self._most and super().add(path, device)


def names(watch: RunPoller) -> list[str]:
    return [run.name for run in watch.poll()]


def put(source: Path, *runs: str, step: int = 1) -> list[Path]:
    """Writes a record to each of some runs; returns the summary files."""
    return [write_segment(source / run, event(step, scalar("loss", 1)))[0] for run in runs]


def grow(path: Path) -> None:
    """Appends to a file, or to the only summary file of a directory."""
    [path] = path.glob("*_MS") if path.is_dir() else [path]
    with path.open("ab") as file:
        file.write(b"more")


def settle(*paths: Path) -> None:
    """Makes directories or files look as if they had not changed for long."""
    for path in paths:
        os.utime(path, (100.0, 100.0))


def begin_to_watch(watch: DirectoryWatch, *paths: Path, device: int | None = None) -> int:
    """Watches directories; returns their file system."""
    for path in paths:
        device = device or path.stat().st_dev
        if not watch.add(str(path), device):
            pytest.skip("this system does not report changes of this directory")
    assert device is not None
    return device


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "records"


def test_a_source_may_come_later(source: Path) -> None:
    watch = RunPoller(str(source))
    assert names(watch) == []
    put(source, "a/run")
    assert names(watch) == ["a/run"]
    assert names(watch) == []


def test_growth_is_seen_and_rest_is_not(source: Path) -> None:
    summary, other = put(source, "run", "other")
    watch = RunPoller(str(source))
    assert names(watch) == ["other", "run"]
    for path, name in ((summary, "run"), (other, "other")):
        path.chmod(0o600)
        grow(path)
        assert names(watch) == [name]
        assert names(watch) == []


def test_new_files_and_runs_are_seen(source: Path) -> None:
    put(source, "run")
    watch = RunPoller(str(source))
    names(watch)
    put(source, "run", "run/below", step=2)
    assert names(watch) == ["run", "run/below"]
    put(source, "before", step=2)
    assert names(watch) == ["before"]
    found = [(run.name, len(run.files)) for run in watch.runs()]
    assert found == [("before", 2), ("run", 4), ("run/below", 2)]


def test_a_run_in_the_source_itself_bears_its_name(source: Path) -> None:
    put(source, "", "below")
    assert names(RunPoller(str(source))) == ["records", "records/below"]


def test_directories_that_vanish_are_forgotten(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(source, "a/run")
    watch = RunPoller(str(source))
    names(watch)
    assert watch.gone() == []
    shutil.rmtree(source)
    assert names(watch) == []
    assert watch.runs() == []
    assert watch.gone() == [str(source / "a" / "run")]
    assert str(source / "a" / "run") not in watch
    put(source, "a/run")
    [run] = watch.poll()
    assert run.path in watch
    assert watch.gone() == []
    for path in (source / "a" / "run").iterdir():
        path.unlink()  # the directory itself stays
    watch.again(run)
    assert names(watch) == []
    assert run.path not in watch
    assert caplog.messages == []
    assert watch.gone() == [str(source / "a" / "run")]


def test_settled_directories_are_not_listed_again(source: Path) -> None:
    put(source, "run")
    settle(source, source / "run")
    clock, listed = Clock(200.0), set()
    watch = RunPoller(
        str(source), clock=clock, noticed=lambda entry: listed.add(os.path.dirname(entry.path))
    )
    names(watch)
    listed.clear()
    names(watch)
    assert listed == set()
    clock.now += 31.0  # a file system may not tell
    names(watch)
    assert listed == {str(source), str(source / "run")}
    listed.clear()
    put(source, "run", step=2)
    assert names(watch) == ["run"]
    assert listed == {str(source / "run")}


def test_settled_directories_are_listed_again_when_the_clock_is_set_back(source: Path) -> None:
    """A file system may not say that a directory has changed."""
    put(source, "run")
    clock = Clock(10_000.0)
    settle(source / "run")
    watch = RunPoller(str(source), clock=clock)
    assert names(watch) == ["run"]
    put(source, "run", step=2)
    settle(source / "run")
    assert names(watch) == []
    clock.now = 5000.0
    assert names(watch) == ["run"]


def test_a_directory_that_has_just_changed_is_listed_again(source: Path) -> None:
    """Two changes within one tick of the clock leave the same time."""
    put(source, "run")
    settle(source / "run")
    watch = RunPoller(str(source), clock=Clock(100.5))
    names(watch)
    put(source, "run", step=2)
    settle(source / "run")
    assert names(watch) == ["run"]


def test_of_the_files_of_one_writer_only_the_newest_is_looked_at(source: Path) -> None:
    files = put(source, *["run"] * 5)
    settle(source, source / "run")
    watch = RunPoller(str(source))
    names(watch)
    for number, expected in ((0, []), (3, []), (4, ["run"])):
        grow(files[number])
        assert names(watch) == expected


def test_a_directory_that_is_gone_is_forgotten_with_all_below(source: Path) -> None:
    put(source, "a", "b/c", "d")
    watch = RunPoller(str(source))
    names(watch)
    shutil.rmtree(source / "a")
    shutil.rmtree(source / "b")
    names(watch)
    assert [run.name for run in watch.runs()] == ["d"]
    put(source, "a")
    assert names(watch) == ["a"]


def test_a_directory_that_is_replaced_by_a_link_to_it_is_gone(source: Path) -> None:
    put(source, "run", "run/below")
    poller = RunPoller(str(source))
    assert names(poller) == ["run", "run/below"]
    (source / "run").rename(source.parent / "moved")
    (source / "run").symlink_to(source.parent / "moved")
    assert names(poller) == []
    assert poller.runs() == []
    assert poller.gone() == [str(source / "run"), str(source / "run/below")]


def test_directories_nested_too_deeply_are_left_out(source: Path) -> None:
    path = str(source)
    for depth in range(1200):
        os.mkdir(path)
        if depth in (DEEPEST, DEEPEST + 1, 1199):
            Path(path, summary_name()).write_bytes(b"x")
        path += "/d"
    try:
        poller = RunPoller(str(source))
        assert names(poller) == ["/".join("d" * DEEPEST)]
        assert [run.name for run in find_runs(source)] == ["/".join("d" * DEEPEST)]
        shutil.move(source / "d", source.parent / "moved")
        assert names(poller) == []
    finally:
        subprocess.run(["rm", "-rf", str(source.parent)], check=True)  # shutil would recurse


def test_a_file_that_is_repaired_is_seen_and_a_run_can_be_asked_for_again(source: Path) -> None:
    [path] = put(source, "run")
    put(source, "run", step=2)  # it is not the newest file
    watch = RunPoller(str(source))
    [run] = watch.poll()
    settle(path)
    assert names(watch) == ["run"]
    path.rename(source / "old")
    path.write_bytes((source / "old").read_bytes())
    settle(path)
    assert names(watch) == ["run"]
    assert names(watch) == []
    path.rename(source / "away")
    assert names(watch) == []
    (source / "away").rename(path)
    assert names(watch) == ["run"]
    watch.again(run)
    assert names(watch) == ["run"]
    assert names(watch) == []


def test_of_a_large_tree_the_runs_that_changed_last_are_checked_every_time(source: Path) -> None:
    """Where nothing can be watched, as on a network file system."""
    files = []
    for number in range(20):
        written = write_segment(source / f"run_{number:02}", event(1, scalar("loss", 1)))
        for path in written:
            os.utime(path, (number * 7 % 20, number * 7 % 20))  # run_17 was written to last
        files.append(written[0])
    clock, none = Clock(), Watch(source.parent / "mounts")
    watch = RunPoller(str(source), clock=clock, most_checked=8, watch=none)
    assert len(names(watch)) == 20
    clock.now = 1e6

    def seen(most: int) -> list[str]:
        none.checked.clear()
        found = sorted(name for _ in range(most) for name in names(watch))
        assert len(none.checked) <= most * 7  # the source, four runs, two in turn
        return found

    for number in (17, 14, 11, 8):  # written to lately
        clock.now += 100
        grow(files[number])
        assert seen(1) == [f"run_{number:02}"]
    clock.now += 100
    grow(files[3])
    assert seen(12) == ["run_03"]  # when its turn comes
    grow(files[3])
    assert seen(1) == ["run_03"]
    grow(files[17])
    assert seen(1) == []  # four others were written to later
    assert seen(11) == ["run_17"]
    put(source, "later")
    assert names(watch) == ["later"]
    every = [f"run_{number:02}" for number in range(20)]
    for number in range(20):  # all of them are written to
        grow(files[number])
    assert sorted(name for _ in range(13) for name in names(watch)) == every
    for number in range(20):
        grow(files[number])
    assert names(watch) == every
    shutil.rmtree(files[5].parent)
    assert names(watch) == []
    assert watch.gone() == [str(files[5].parent)]
    assert len(watch.runs()) == 20


class Watched:
    """A poller of a tree that is large enough to be watched, and is.

    Attributes:
        clock: The time; it stands, so that directories have no turn.
        watch: What the tree is watched with.
        poller: The poller.
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        self.clock = Clock(time.time())
        self.watch = Watch(source.parent / "mounts", source.stat().st_dev)
        begin_to_watch(self.watch, source.parent)
        self.watch.remove(str(source.parent))
        self.poller = RunPoller(str(source), clock=self.clock, most_checked=8, watch=self.watch)
        for _ in range(100):
            if not self.poll() and set(self.checked) == {"."}:
                break
        if not self.is_complete:
            pytest.skip("this system does not allow enough watches")

    @property
    def checked(self) -> list[str]:
        """The directories that were checked since `poll` was called, below the source."""
        return [os.path.relpath(path, self._source) for path in self.watch.checked]

    @property
    def is_complete(self) -> bool:
        """Whether all directories are watched, but no links."""
        directories = [path for path, *_ in os.walk(self._source) if not os.path.islink(path)]
        return len(self.watch) == len(directories)

    def poll(self) -> list[str]:
        self.watch.checked.clear()
        return names(self.poller)

    def see_growth_of(self, *runs: str) -> None:
        """Lets one run after the other grow; a poll returns it and no other."""
        for run in runs:
            grow(self._source / run)
            assert self.poll() == [run]


@pytest.fixture
def watched(source: Path) -> Watched:
    for number in range(20):
        [path] = put(source, f"run_{number:02}")
        os.utime(path, (number, number))
    return Watched(source)


def test_of_a_watched_tree_only_what_changes_is_checked(source: Path, watched: Watched) -> None:
    assert watched.poll() == []
    assert watched.checked == ["."]
    watched.see_growth_of("run_03")  # it has rested
    assert watched.checked == [".", "run_03"]
    assert watched.poll() == []
    put(source, "new/below")
    assert watched.poll() == ["new/below"]
    assert watched.checked == [".", "new", "new/below"]
    put(source, "new/below", "new/later", step=2)
    assert watched.poll() == ["new/below", "new/later"]
    watched.see_growth_of("new/later")
    assert watched.checked == [".", "new/later"]


def test_a_large_tree_that_has_no_records_yet_is_watched(source: Path) -> None:
    for number in range(10):
        (source / f"run_{number}").mkdir(parents=True)
    watched = Watched(source)
    put(source, "run_3")
    assert watched.poll() == ["run_3"]
    assert watched.checked == [".", "run_3"]


def test_a_directory_that_is_replaced_by_one_with_the_same_time(
    source: Path, watched: Watched
) -> None:
    """As a copy that keeps the times has it."""
    for path in (source / "group", source.parent / "new"):
        write_segment(path / path.name, event(1, scalar("loss", 1)))
        settle(path)
    assert watched.poll() == ["group/group"]
    (source / "group").rename(source.parent / "old")
    (source.parent / "new").rename(source / "group")
    assert watched.poll() == ["group/new"]
    assert watched.poller.gone() == [str(source / "group" / "group")]


def test_directories_of_a_watched_tree_that_are_moved_replaced_or_removed(
    source: Path, watched: Watched
) -> None:
    (source / "run_01").rename(source / "moved")
    assert watched.poll() == ["moved"]
    assert watched.poller.gone() == [str(source / "run_01")]
    shutil.rmtree(source / "run_02")
    write_segment(source / "run_02", event(1, scalar("auc", 1)))  # at once, under the same name
    assert watched.poll() == ["run_02"]
    (source / "run_03").rename(source / "run_04" / "inside")
    assert watched.poll() == ["run_04/inside"]
    (source / "run_05").rename(source.parent / "elsewhere")
    (source / "run_06").rename(source / "run_05")
    assert watched.poll() == ["run_05"]
    assert set(watched.poller.gone()) == {str(source / f"run_0{n}") for n in (3, 6)}
    watched.see_growth_of("moved", "run_02", "run_04/inside", "run_05")
    shutil.rmtree(source / "run_04")
    assert watched.poll() == []
    assert set(watched.poller.gone()) == {str(source / "run_04"), str(source / "run_04/inside")}
    assert watched.is_complete


def test_directories_that_are_renamed_into_the_place_of_others(
    source: Path, watched: Watched
) -> None:
    put(source, "a/train", "b/train", "c/train")
    write_segment(source.parent / "new" / "train", event(1, scalar("auc", 1)))
    assert watched.poll() == ["a/train", "b/train", "c/train"]
    (source / "a").rename(source.parent / "old")
    (source.parent / "new").rename(source / "a")
    assert watched.poll() == ["a/train"]
    (source / "a").rename(source / "d")
    (source / "b").rename(source / "a")
    (source / "c").rename(source / "b")
    assert watched.poll() == ["a/train", "b/train", "d/train"]
    assert watched.poller.gone() == [str(source / "c/train")]
    watched.see_growth_of("a/train", "b/train", "d/train")
    assert watched.is_complete


def test_a_directory_that_cannot_be_listed_for_a_moment_is_found_again(
    source: Path,
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(source / "group", "run", "run/below")
    assert watched.poll() == ["group/run", "group/run/below"]

    scandir = os.scandir

    def failing(path: str) -> Any:
        if path == str(source / "group" / "run"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return scandir(path)

    put(source, "group/run", step=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)  # too many open files would fail all directories
        assert watched.poll() == []
        assert watched.poll() == []
    path = source / "group" / "run"
    assert caplog.messages == [f"rec_summary: {path} is left out: Too many open files"]
    assert watched.poll() == ["group/run", "group/run/below"]
    put(source, "group/run", step=3)
    assert watched.poll() == ["group/run"]


def test_what_the_kernel_does_not_report_is_seen_in_turn(source: Path, watched: Watched) -> None:
    [path] = (source / "run_03").glob("*summary*_MS")
    os.link(path, source.parent / "other")
    assert watched.poll() == []  # some kernels report that a file has one name more
    grow(source.parent / "other")
    assert watched.poll() == []
    begun = watched.clock.now + 60.0  # so that they are listed again
    seen, checks = [], 0
    for later in range(0, 1300, 10):
        watched.clock.now = begun + later
        seen += watched.poll()
        checks += len(watched.checked) - 1
    assert seen == ["run_03"]
    assert checks < 100  # not each directory at each poll


def test_which_file_systems_are_mounted_is_looked_up_after_each_turn(watched: Watched) -> None:
    watched.watch.mount()
    assert watched.poll() == []
    assert watched.is_complete
    for _ in range(50):
        watched.clock.now += 30.0
        watched.poll()
    assert len(watched.watch) == 0


def test_a_watch_of_a_directory_that_is_not_at_its_path_is_replaced(source: Path) -> None:
    for name in ("run/train", "new/train"):
        (source / name).mkdir(parents=True)
    watch, before = DirectoryWatch(), _inotify()
    run, train = str(source / "run"), str(source / "run" / "train")
    device = begin_to_watch(watch, Path(run), Path(train))
    (source / "run").rename(source / "old")
    (source / "new").rename(source / "run")
    assert watch.add(run, device)
    assert watch.changed() == {run, train}
    assert len(watch) == 0
    (source / "old" / "later").mkdir()
    assert watch.changed() == set()  # nobody asks for that directory
    kernel = Path("/proc/self/fdinfo")
    assert not any("inotify wd:" in (kernel / each).read_text() for each in _inotify() - before)


def test_a_directory_that_has_moved_is_watched_once_its_old_place_is_known_to_be_gone(
    source: Path,
) -> None:
    (source / "run").mkdir(parents=True)
    watch = DirectoryWatch()
    run, moved = str(source / "run"), str(source / "moved")
    device = begin_to_watch(watch, source / "run")
    os.rename(run, moved)
    assert not watch.add(moved, device)
    assert watch.changed() == {run}
    assert watch.add(moved, device)
    assert watch.changed() == set()
    (source / "moved" / "later").mkdir()
    assert watch.changed() == {moved}


def test_a_system_that_allows_no_more_watches_is_named_once(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class FullAfterOne(ctypes.CDLL):
        """The C library of a system that allows one watch."""

        def inotify_add_watch(self, fd: int, path: bytes, mask: int) -> int:
            if not os.path.isdir(path) or not len(watch):
                return int(self["inotify_add_watch"](fd, path, mask))
            ctypes.set_errno(errno.ENOSPC)
            return -1

    source.mkdir()
    watch = DirectoryWatch(library=FullAfterOne(None, use_errno=True))
    device = begin_to_watch(watch, source)
    for name in "ab":
        (source / name).mkdir()
    with caplog.at_level(logging.INFO, logger="rec_summary"):
        assert not watch.add(str(source / "missing"), device)
        assert caplog.messages == []
        for name in "ab":
            assert not watch.add(str(source / name), device)
    [message] = caplog.messages
    assert "1 directories are watched; the others are polled" in message
    assert len(watch) == 1


def test_a_mount_whose_name_is_no_text_hides_no_other(source: Path) -> None:
    source.mkdir()
    mounts, device = source.parent / "mounts", source.stat().st_dev
    own = f"{os.major(device)}:{os.minor(device)}".encode()
    mounts.write_bytes(
        b"30 1 8:1 / /data/\xff rw - ext4 /dev/sda1 rw\n31 1 %b / /logs rw - xfs dev rw\n" % own
    )
    begin_to_watch(DirectoryWatch(), source)
    assert DirectoryWatch(str(mounts)).add(str(source), device)


def test_which_file_systems_are_local_is_found_out_again(source: Path) -> None:
    for name in "abc":
        (source / name).mkdir(parents=True)
    watch = Watch(source.parent / "mounts", 1)
    begin_to_watch(watch, source / "a", device=1)
    watch.mount(2)
    assert watch.add(str(source / "b"), 2)  # mounted later
    assert watch.add(str(source / "c"), 1)  # as far as is known
    watch.look_at_mounts()
    assert not watch.add(str(source / "a"), 1)
    assert str(source / "a") not in watch
    assert watch.add(str(source / "b"), 2)


def test_a_watch_that_is_closed_leaves_no_descriptor(source: Path) -> None:
    source.mkdir()
    watch, before = DirectoryWatch(), _inotify()
    begin_to_watch(watch, source)
    assert len(_inotify() - before) == 1
    watch.close()
    assert _inotify() <= before
    assert len(watch) == 0
    assert watch.changed() == set()
    watch.close()


def _inotify() -> set[str]:
    """Returns the descriptors of this process through which directories are watched."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if "inotify" in os.readlink(f"/proc/self/fd/{fd}"):
                found.add(fd)
    return found


_ENDING = """
import atexit
atexit.register(lambda: print("changed", watch.changed()))  # after what is registered later
import os, sys
from rec_summary.series.discovery.directory_watch import DirectoryWatch
watch = DirectoryWatch()
print(watch.add(sys.argv[1], os.stat(sys.argv[1]).st_dev))
"""


def test_a_thread_may_ask_until_the_process_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ENDING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("changed set()", "")


def test_a_watched_source_that_is_replaced_by_another_directory(
    source: Path, watched: Watched
) -> None:
    shutil.copytree(source, source.parent / "other")
    source.rename(source.parent / "old")
    (source.parent / "other").rename(source)
    every = [f"run_{number:02}" for number in range(20)]
    assert watched.poll() == every
    grow(source / "run_07")
    assert "run_07" in watched.poll()
    shutil.rmtree(source)
    assert watched.poll() == []
    assert watched.poller.runs() == []
    assert len(watched.watch) == 0
    put(source, "run")
    assert watched.poll() == ["run"]


def test_a_watched_source_that_is_a_link_to_another_tree_now(source: Path) -> None:
    every = [f"run_{number}" for number in range(10)]
    put(source.parent / "first", *every)
    shutil.copytree(source.parent / "first", source.parent / "second")
    shutil.rmtree(source.parent / "second" / every.pop())
    source.symlink_to(source.parent / "first")
    watched = Watched(source)
    source.unlink()
    source.symlink_to(source.parent / "second")
    assert watched.poll() == every
    assert watched.poller.gone()[-1] == str(source / "run_9")
    watched.see_growth_of("run_7")
    assert watched.is_complete


def test_links_in_a_watched_tree_are_named_once(
    source: Path, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    [outside] = put(source.parent, "outside")
    (source / "link").symlink_to(outside.parent)
    (source / "same").symlink_to("run_01")
    assert watched.poll() == []
    grow(outside)
    assert watched.poll() == []
    assert watched.checked == ["."]
    (source / "new").mkdir()
    assert watched.poll() == []
    [message] = caplog.messages
    assert f"{source / 'link'} is left out: a link out of the tree" in message


def test_links_in_a_watched_tree_are_followed_where_the_environment_says_so(
    source: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REC_SUMMARY_FOLLOW_LINKS", "1")
    [outside] = put(source.parent, "outside/run")
    (source / "link").symlink_to(source.parent / "outside")
    assert watched.poll() == ["link/run"]
    grow(outside)
    assert watched.poll() == ["link/run"]
    put(source.parent, "outside/later")
    assert watched.poll() == ["link/later"]
    (source / "link").unlink()
    assert watched.poll() == []
    assert watched.poller.gone() == [str(source / "link/later"), str(source / "link/run")]


def test_more_changes_than_the_kernel_keeps(source: Path, watched: Watched) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 1 << 17:
        pytest.skip("it keeps very many")
    put(source, "run_00/train")
    assert watched.poll() == ["run_00/train"]
    files = [path for name in ("run_02", "run_01") for path in (source / name).glob("*_MS")]
    for number in range(most // 2 + 1):
        for path in files:
            os.utime(path, (number, number))
    (source / "run_00").rename(source.parent / "old")
    shutil.copytree(source.parent / "old", source / "run_00")
    grow(source / "run_09")
    assert watched.poll() == ["run_00", "run_00/train", "run_01", "run_02", "run_09"]
    assert len(watched.checked) == 22
    assert watched.poll() == []
    assert watched.checked == ["."]
    watched.see_growth_of("run_00/train", "run_03")


def test_directories_beyond_the_limit_of_watches_are_polled(source: Path) -> None:
    every = [f"run_{number:02}" for number in range(20)]
    put(source, *every)
    watch = Watch(source.parent / "mounts", source.stat().st_dev, most=5)
    poller = RunPoller(str(source), most_checked=8, watch=watch)
    assert len(names(poller)) == 20
    for name in every:
        grow(source / name)
    assert sorted(name for _ in range(12) for name in names(poller)) == every


def test_each_directory_is_listed_once_by_the_first_look(source: Path) -> None:
    put(source, "a/one", "a/two", "b")
    settle(source, *source.rglob("*"))
    listed: list[str] = []
    poller = RunPoller(str(source), noticed=lambda entry: listed.append(entry.path))
    assert [run.name for run in poller.find()] == ["a/one", "a/two", "b"]
    assert names(poller) == ["a/one", "a/two", "b"]
    assert names(poller) == []
    assert sorted(listed) == sorted(map(str, source.rglob("*")))


def test_what_cannot_be_found_is_an_error_of_find_only(source: Path) -> None:
    poller = RunPoller(str(source))
    with pytest.raises(NotFoundError, match="existing directory"):
        poller.find()
    assert names(poller) == []
    put(source, "run")
    assert names(poller) == ["run"]


def test_few_directories_of_many_ranks_are_not_asked_for_each_file(source: Path) -> None:
    [grown] = put(source, "run")
    for rank in range(1, 6):
        write_segment(source / "run", event(1, scalar("loss", 1)), rank=rank)
    settle(source, source / "run")
    before, watched = _inotify(), Watched(source)
    assert watched.poll() == []
    assert watched.checked == ["."]
    grow(grown)
    assert watched.poll() == ["run"]
    assert len(_inotify() - before) == 1
    watched.poller.close()
    assert _inotify() <= before


class Store:
    """Record files at a URL, with a clock that stands where it is put.

    Attributes:
        clock: The time.
        files: The file system.
        poller: A poller of the URL.
    """

    def __init__(self) -> None:
        self.files = store_in_memory()
        self.clock = Clock()
        self.poller = RunPoller(f"{self.files.protocol}://polled", clock=self.clock)

    def put(self, run: str, data: bytes) -> None:
        self.files.pipe_file(f"/polled/{run}/{summary_name()}", data)

    def poll(self) -> list[str]:
        """Polls after five seconds: then the files are listed again."""
        self.clock.now += 5.0
        return names(self.poller)


@pytest.fixture
def store() -> Store:
    return Store()


def test_at_a_url_a_run_is_returned_when_it_is_new_has_grown_or_is_asked_for(store: Store) -> None:
    assert store.poll() == []  # nothing is there yet
    store.put("a", b"1")
    store.put("b", b"1")
    runs = store.poller.runs
    assert store.poll() == ["a", "b"]
    assert store.poll() == []
    store.put("b", b"12")
    assert store.poll() == ["b"]
    assert [run.nbytes for run in runs()] == [1, 2]
    store.poller.again(runs()[0])
    assert store.poll() == ["a"]
    assert store.poll() == []


def test_runs_that_are_removed_from_a_url_are_gone(store: Store) -> None:
    for name in "abc":
        store.put(name, b"1")
    store.poll()
    root = f"{store.files.protocol}://polled"
    store.files.rm("/polled/b", recursive=True)
    assert store.poll() == []
    assert store.poller.gone() == [f"{root}/b"]
    assert [run.name for run in store.poller.runs()] == ["a", "c"]
    store.files.rm("/polled", recursive=True)
    assert store.poll() == []
    assert sorted(store.poller.gone()) == [f"{root}/a", f"{root}/c"]
    store.put("b", b"1")
    assert store.poll() == ["b"]
    assert store.poller.gone() == []


def test_a_url_is_listed_every_five_seconds(store: Store) -> None:
    store.put("a", b"1")
    assert names(store.poller) == ["a"]  # the first time at once
    store.put("b", b"1")
    store.clock.now = 4.9
    assert (names(store.poller), store.files.lists.count) == ([], 1)
    store.clock.now = 5.0
    assert (names(store.poller), store.files.lists.count) == (["b"], 2)


def test_a_url_that_cannot_be_listed_for_a_while_is_one_warning_and_loses_no_run(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        store.put(name, b"1")
    store.poll()
    store.put("b", b"12")
    store.poller.again(store.poller.runs()[0])
    store.files.lists.error = ConnectionError("no answer")
    assert (store.poll(), store.poll()) == ([], [])
    assert [run.name for run in store.poller.runs()] == ["a", "b"]
    assert store.poller.gone() == []
    [warning] = caplog.messages
    assert "the list of runs is not up to date, trying again" in warning
    assert "no answer" in warning
    store.files.lists.error = None
    assert store.poll() == ["a", "b"]
    store.files.store.clear()
    for error in (ConnectionError("no answer"), None, ConnectionError("no answer")):
        store.files.lists.error = error
        assert store.poll() == []
    assert len(caplog.messages) == 3  # it worked in between, though nothing was there
