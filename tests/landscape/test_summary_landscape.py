"""Landscapes of a loss whose surface is known, on every engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

from rec_summary.errors import SourceError
from rec_summary.landscape.checkpoints import Trajectory
from rec_summary.landscape.evaluate import ModelError
from rec_summary.landscape.metadata import check_changes
from rec_summary.landscape.plane import random_plane, touched_rows
from rec_summary.landscape.store import BusyError
from rec_summary.landscape.summary_landscape import Options, SummaryLandscape
from rec_summary.records.checkpoints.file import CheckpointFile
from rec_summary.tables.frames import load
from rec_summary.tensorboard.dashboards.landscape.mesh import landscape_mesh
from rec_summary.values.landscape import Landscape
from tests.support import quadratic
from tests.support.quadratic import SEQUENTIAL, Maker, compute, write_run
from tests.support.waiting import eventually

PCA, RANDOM = "landscape_[1, 6]", "landscape_[6]"
POINTS = np.array(quadratic.descend(6))
DIFFERENCES = POINTS - POINTS[-1]
_, SINGULAR, TURNED = np.linalg.svd(DIFFERENCES[:-1], full_matrices=False)


@pytest.fixture(scope="module")
def landscapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Landscape]:
    """What one process finds, by tag."""
    return compute(tmp_path_factory.mktemp("alone") / "run")


def test_the_surface_is_the_analytic_one(landscapes: dict[str, Landscape]) -> None:
    found = landscapes[PCA]
    # The plane: what singular values say, up to the sign of each direction.
    expected_path = DIFFERENCES @ TURNED[:2].T
    signs = np.sign((expected_path * found.path[:, :2]).sum(axis=0))
    np.testing.assert_allclose(found.path[:, :2], expected_path * signs, atol=1e-5)
    directions = TURNED[:2] * signs[:, None]
    for row, y in enumerate(found.y):
        for column, x in enumerate(found.x):
            exact = quadratic.loss(POINTS[-1] + x * directions[0] + y * directions[1])
            assert found.z[row, column] == pytest.approx(exact, rel=1e-5)


def test_losses_on_the_path_are_those_of_the_checkpoints_up_to_the_projection(
    landscapes: dict[str, Landscape],
) -> None:
    found = landscapes[PCA]
    projected = DIFFERENCES @ TURNED[:2].T @ TURNED[:2]
    residuals = np.linalg.norm(DIFFERENCES - projected, axis=1)
    gradients = quadratic.curvature() * (POINTS - quadratic.minimum())
    bounds = (np.linalg.norm(gradients, axis=1) + 3 * residuals) * residuals + 1e-4
    losses = np.array([quadratic.loss(point) for point in POINTS])
    assert (abs(found.path[:, 2] - losses) <= bounds).all()
    assert found.path[-1, 2] == pytest.approx(losses[-1], rel=1e-6)
    assert found.convergence == pytest.approx((0, 0, losses[-1]), rel=1e-6)


def test_what_is_said_about_it(landscapes: dict[str, Landscape]) -> None:
    pca, at_random = landscapes[PCA], landscapes[RANDOM]
    squares = SINGULAR**2
    np.testing.assert_allclose(pca.explained, squares[:2] / squares.sum(), rtol=1e-5)
    assert (pca.decomposition, pca.samples, pca.moved) == ("PCA", 48, quadratic.SIZE)
    assert (at_random.decomposition, at_random.seed) == ("Random", 1)
    assert pca.intervals == (1, 2, 3, 4, 5, 6)


def test_a_minimum_off_the_centre_is_where_it_belongs_in_the_mesh(
    landscapes: dict[str, Landscape],
) -> None:
    found = landscapes[PCA]
    row, column = np.unravel_index(found.z.argmin(), found.z.shape)
    assert (row, column) != (found.z.shape[0] // 2, found.z.shape[1] // 2)
    mesh = landscape_mesh(found)
    grid = mesh.vertices[: found.z.size].reshape(*found.z.shape, 3)
    # x grows to the right; y grows towards the viewer, and the box is tilted about x.
    assert np.all(np.diff(grid[0, :, 0]) > 0)
    assert np.all(np.diff(grid[:, 0, 2] - grid[:, 0, 1]) > 0)
    darkest = mesh.colours[: found.z.size].sum(axis=1).argmin()
    assert darkest == row * found.z.shape[1] + column


@pytest.mark.parametrize("dask", [None, (2, 1), (1, 2), (2, 2)])
def test_every_engine_gives_the_same(
    landscapes: dict[str, Landscape], tmp_path: Path, dask: tuple[int, int] | None
) -> None:
    if dask is None:
        others = compute(tmp_path / "others", Options(engine="loky", jobs=2))
    else:
        distributed = pytest.importorskip("distributed")
        workers, threads = dask
        with distributed.LocalCluster(
            n_workers=workers, threads_per_worker=threads, dashboard_address=None
        ) as cluster:
            address = cluster.scheduler_address.replace("tcp://", "dask://")
            others = compute(tmp_path / "others", Options(engine=address, jobs=2))
    assert set(landscapes) == set(others)
    for tag, landscape in landscapes.items():
        is_same(landscape, others[tag])


def is_same(found: Landscape, exact: Landscape) -> None:
    """Checks that two landscapes have the same losses at the same places."""
    np.testing.assert_array_equal(found.z, exact.z)
    np.testing.assert_array_equal(found.path, exact.path)


def test_embedding_tables_move_unless_they_are_not_to(
    landscapes: dict[str, Landscape], tmp_path: Path
) -> None:
    dense, table = (
        compute(tmp_path / parameters, replace(SEQUENTIAL, parameters=parameters))[PCA]
        for parameters in ("dense", "user_emb")
    )
    assert (landscapes[PCA].moved, dense.moved, table.moved) == (23, 8, 15)
    assert not np.allclose(landscapes[PCA].z, dense.z)


def test_planes_at_random_are_those_of_their_seed(tmp_path: Path) -> None:
    first, same, other = (
        compute(tmp_path / name, replace(SEQUENTIAL, seed=seed), train=False)[RANDOM]
        for name, seed in (("first", 3), ("same", 3), ("other", 4))
    )
    np.testing.assert_array_equal(first.z, same.z)
    assert not np.allclose(first.z, other.z)
    assert len(first.path) == 0


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A file that gets a line for each evaluation."""
    return tmp_path / "journal"


def test_a_failure_keeps_what_is_done_and_the_next_run_goes_on(
    landscapes: dict[str, Landscape], tmp_path: Path, journal: Path
) -> None:
    make = Maker(journal=str(journal), fails_at=20)
    with pytest.raises(ModelError, match=r"the loss at .*RuntimeError: out of luck"):
        compute(tmp_path / "run", make=make, result=False)
    assert lines(journal) == 19
    # The same computation: what does not matter for it may differ.
    found = compute(tmp_path / "run", make=Maker(journal=str(journal)), result=False)
    assert lines(journal) == 7 * 7 + 6
    is_same(found[PCA], landscapes[PCA])


@pytest.mark.parametrize("damage", ["zeroed", "cut", "gone", "plan"])
def test_a_plane_that_is_damaged_is_computed_again(
    landscapes: dict[str, Landscape], tmp_path: Path, damage: str
) -> None:
    with pytest.raises(ModelError, match="out of luck"):
        compute(tmp_path / "run", make=Maker(fails_at=20), result=False)
    [plane] = (tmp_path / "run" / "landscape").glob("*/plane.bin")
    path = plane.with_name("plan.json") if damage == "plan" else plane
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-20] + bytes(0 if damage == "cut" else 20))
    is_same(compute(tmp_path / "run", result=False)[PCA], landscapes[PCA])


@pytest.mark.parametrize("engine", ["sequential", "loky"])
def test_what_is_complete_is_recorded_again_without_an_evaluation(
    tmp_path: Path, journal: Path, engine: str
) -> None:
    compute(tmp_path / "run", make=Maker(journal=str(journal)))
    before = lines(journal)
    compute(tmp_path / "run", Options(engine=engine), make=Maker(journal=str(journal)))
    assert lines(journal) == before


@pytest.mark.parametrize("changes", [{"num_samples": 32}, {"landscape_size": 5}, {}])
def test_another_computation_starts_again(
    tmp_path: Path, journal: Path, changes: dict[str, Any]
) -> None:
    make = Maker(journal=str(journal))
    compute(tmp_path / "run", make=make, result=False)
    if not changes:
        path = tmp_path / "run" / "ckpt_dir" / "Net_3_step.ckpt"
        quadratic.write_checkpoint(path, POINTS[0])
    before = lines(journal)
    compute(tmp_path / "run", make=make, result=False, **changes)
    size = changes.get("landscape_size", 7)
    assert lines(journal) - before == size * size + 6


def test_a_computation_that_is_killed_goes_on(tmp_path: Path, journal: Path) -> None:
    write_run(tmp_path / "run", size=9)
    program = (
        "import sys; from pathlib import Path; "
        "from tests.support.quadratic import Maker, compute; "
        "compute(Path(sys.argv[1]), make=Maker(0.05, sys.argv[2], hangs_at=60), result=False)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "run"), str(journal)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.getcwd()})
    eventually(lambda: lines(journal), lambda count: count >= 59)
    process.kill()
    process.wait()
    compute(tmp_path / "run", make=Maker(journal=str(journal)), result=False)
    again = lines(journal) - (9 * 9 + 6)  # what was done and not saved yet
    assert 0 <= again <= 30


def test_another_process_at_work_is_named(tmp_path: Path) -> None:
    compute(tmp_path / "run", result=False)
    [folder] = (tmp_path / "run" / "landscape").iterdir()
    with (
        filelock.FileLock(folder / ".rec_summary.lock"),
        pytest.raises(BusyError, match=rf"computed by process {os.getpid()} on "),
    ):
        compute(tmp_path / "run", result=False)


def test_progress_reaches_the_whole(tmp_path: Path) -> None:
    metadata = write_run(tmp_path / "run")
    seen: list[tuple[str, int, int]] = []
    SummaryLandscape(tmp_path / "run").compute(
        Maker(), metadata, SEQUENTIAL, progress=lambda *now: seen.append(now)
    )
    assert seen[0] == (PCA, 0, 55)
    assert (PCA, 55, 55) in seen
    assert seen[-1] == (RANDOM, 50, 50)


def test_losses_that_are_no_numbers_are_kept_as_such(tmp_path: Path) -> None:
    class Broken(quadratic.Quadratic):
        def loss(self) -> float:
            super().loss()
            return float("nan")

    class BrokenMaker(Maker):
        def __call__(self, device: int | None) -> quadratic.Quadratic:
            return Broken(self)

    found = compute(tmp_path / "run", make=BrokenMaker(), result=False)
    assert np.isnan(found[PCA].z).all()


def test_steps_beyond_32_bits_are_recorded(tmp_path: Path) -> None:
    metadata = write_run(tmp_path / "run")
    late = {number + (1 << 31): name for number, name in metadata.files.items()}
    found = compute(tmp_path / "run", files=late, intervals=(tuple(late),), result=False)
    assert found["landscape_[2147483649, 2147483654]"].intervals == tuple(late)


def spoil(folder: Path, what: str) -> None:
    checkpoints = folder / "ckpt_dir"
    path = checkpoints / "Net_3_step.ckpt"
    if what == "metadata":
        (checkpoints / "train_metadata.json").write_text("{}")
    elif what == "no metadata":
        (checkpoints / "train_metadata.json").unlink()
    elif what == "missing":
        path.unlink()
    elif what == "truncated":
        path.write_bytes(path.read_bytes()[:40])
    elif what == "other parameters":
        path.write_bytes(quadratic.value("x", (1,), "Float32", bytes(4)))
    elif what == "other shape":
        with CheckpointFile(path) as file:
            flat = {name: file.array(name).reshape(-1) for name in file.names}
        kinds = {name: "Int32" if name == "global_step" else "Float32" for name in flat}
        values = (
            quadratic.value(name, array.shape, kinds[name], array.tobytes())
            for name, array in flat.items()
        )
        path.write_bytes(b"".join(values))
    elif what == "diverged":
        quadratic.write_checkpoint(path, np.full(quadratic.SIZE, np.nan))
    elif what == "identical":
        write_points(folder, [quadratic.minimum()] * 6)


@pytest.mark.parametrize(
    ("what", "changes", "match"),
    [
        ("metadata", {}, "the metadata of a loss landscape is invalid"),
        ("no metadata", {}, "collect_specified_data"),
        ("missing", {}, "checkpoint 3 of the loss landscape"),
        ("truncated", {}, "offset"),
        ("other parameters", {}, "the same in all checkpoints"),
        ("other shape", {}, "the shape of user_embedding_table"),
        ("identical", {}, "6 that lie at the same point"),
        ("diverged", {}, r"NaN or infinite parameters in 3\. Expected"),
        ("too few", {"intervals": ((1, 2),)}, r"2 \(1, 2\)\. Expected: at least 3"),
        ("others", {"intervals": ((1, 2, 99),)}, "one of those kept: 1, 2, 3, 4, 5, 6"),
    ],
)
def test_checkpoints_that_cannot_be_used(
    tmp_path: Path, what: str, changes: dict[str, Any], match: str
) -> None:
    write_run(tmp_path / "run")
    spoil(tmp_path / "run", what)
    with pytest.raises(SourceError, match=match):
        compute(tmp_path / "run", **changes)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"parameters": "nothing"}, "a choice of at least one of"),
        ({"parameters": "("}, "the choice of parameters"),
        ({"engine": "slurm"}, "the engine is invalid"),
        ({"engine": "loky://x"}, "the engine is invalid"),
    ],
)
def test_invalid_options(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        compute(tmp_path / "run", replace(SEQUENTIAL, **options))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"landscape_size": 2}, "an int from 3 to 256"),
        ({"landscape_size": 257}, "an int from 3 to 256"),
        ({"num_samples": 0}, "an int of at least 1"),
        ({"sizes": 3}, "a key of collect_landscape"),
        ({"intervals": [[1, 2, 3], []]}, "lists of numbers"),
        ({"create_landscape": {"trains": True}}, "one of train, result"),
    ],
)
def test_invalid_changes(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        check_changes(changes)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"collect_landscape": {"landscape_size": None}}, TypeError),
        ({"collect_landscape": {"create_landscape": None}}, TypeError),
        ({"collect_landscape": {"num_samples": None}}, TypeError),
        ({"collect_landscape": {"intervals": None}}, TypeError),
        ({"collect_landscape": [3]}, TypeError),
        ({"parameters": "("}, ValueError),
        ({"engine": "slurm"}, ValueError),
    ],
)
def test_arguments_are_checked_before_files_are_read(
    tmp_path: Path, wrong: dict[str, Any], error: type[Exception]
) -> None:
    pytest.importorskip("mindspore")
    with pytest.raises(error, match=r"is invalid\. Received: "):
        SummaryLandscape(tmp_path).gen_landscapes_with_multi_process(dict, **wrong)


def test_intervals_are_lists_of_lists() -> None:
    assert check_changes({"intervals": [range(1, 4)]}) == {"intervals": ((1, 2, 3),)}
    for intervals in (3, [1, 2, 3]):
        with pytest.raises(TypeError, match="a list of lists of ints"):
            check_changes({"intervals": intervals})


def test_cleaning_removes_checkpoints_and_what_was_computed(tmp_path: Path) -> None:
    compute(tmp_path / "run")
    SummaryLandscape(tmp_path / "run").clean_ckpt()
    assert not (tmp_path / "run" / "ckpt_dir").exists()
    assert not (tmp_path / "run" / "landscape").exists()
    assert len(load(tmp_path / "run").landscapes()) == 2


def test_cleaning_leaves_the_files_that_others_wrote(tmp_path: Path) -> None:
    compute(tmp_path / "run")
    kept = tmp_path / "run" / "landscape" / "landscape_6.npz"
    kept.touch()
    SummaryLandscape(tmp_path / "run").clean_ckpt()
    assert list((tmp_path / "run" / "landscape").iterdir()) == [kept]


def test_cleaning_removes_nothing_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("landscape", "ckpt_dir"):
        kept = tmp_path / name / "below" / "kept"
        kept.mkdir(parents=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / name)
    SummaryLandscape(tmp_path / "run").clean_ckpt()
    assert len(list(tmp_path.glob("*/below/kept"))) == 2


def write_points(folder: Path, points: Sequence[Sequence[float]]) -> None:
    """Replaces the checkpoints of a run."""
    for number, point in enumerate(points, start=1):
        path = folder / "ckpt_dir" / f"Net_{number}_step.ckpt"
        quadratic.write_checkpoint(path, np.array(point))


def test_rows_that_were_never_trained_stay_where_they_are(tmp_path: Path) -> None:
    """The first two rows of the table."""
    metadata = write_run(tmp_path / "run")
    write_points(tmp_path / "run", [(*POINTS[0][:6], *point[6:]) for point in POINTS])
    with Trajectory(metadata, metadata.intervals[0]) as trajectory:
        rows = touched_rows(trajectory, "user_embedding_table")
        assert rows.tolist() == [False, False, True, True, True]
        names = trajectory.names
        plane = random_plane(trajectory, names, 5, 1, touched_only=True)
        assert not plane.first["user_embedding_table"][:2].any()
        assert plane.first["user_embedding_table"][2:].all()
        whole = random_plane(trajectory, names, 5, 1)
        np.testing.assert_array_equal(whole.first["head.bias"], plane.first["head.bias"])


def test_a_frozen_parameter_moves_only_if_it_is_named(tmp_path: Path) -> None:
    metadata = write_run(tmp_path / "run", size=3)
    write_points(tmp_path / "run", [(*point[:-2], *POINTS[0][-2:]) for point in POINTS])  # its bias
    landscapes = SummaryLandscape(tmp_path / "run")

    def moved(parameters: str) -> int:
        options = replace(SEQUENTIAL, parameters=parameters)
        plan = replace(metadata, train=False)
        tags = landscapes.compute(Maker(), plan, options, output=tmp_path / parameters)
        assert tags == [RANDOM]
        [found] = load(tmp_path / parameters).landscapes()
        return found.landscape.moved

    assert moved("all") == quadratic.SIZE - 2
    assert moved("head") == quadratic.SIZE - 15


def test_each_row_of_a_direction_at_random_has_the_norm_of_the_parameters(tmp_path: Path) -> None:
    metadata = write_run(tmp_path / "run")
    with Trajectory(metadata, metadata.intervals[0]) as trajectory:
        plane = random_plane(trajectory, trajectory.names, 5, 1)
        assert set(plane.first) == set(quadratic.SHAPES)
        assert "norm.moving_mean" in plane.origin
        for direction in (plane.first, plane.second):
            for name in ("user_embedding_table", "head.weight"):
                np.testing.assert_allclose(
                    np.linalg.norm(direction[name], axis=1),
                    np.linalg.norm(trajectory.last.array(name), axis=1),
                    rtol=1e-5,
                )
