"""The simulator of selection: what holds in every world, and that the worlds are as described."""

import importlib.util
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "simulate_selection.py"
SMALL = Namespace(rows=512, batch=32, generations=8, steps=250, measure_every=10)  # batches a run as by default


@pytest.fixture(scope="module")
def simulator():
    specification = importlib.util.spec_from_file_location("simulate_selection", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def trained(simulator, parameters, *, rows=400, steps=60, chosen=None, seed=0):
    """A world that was trained on random rows, or on those `chosen`, each time."""
    world, rng = simulator.World(parameters, rows, seed), np.random.default_rng(1)
    for _ in range(steps):
        batch = rng.choice(rows, 40, replace=False) if chosen is None else chosen
        world.update(batch, rng.binomial(8, world.pass_rates(batch)) / 8)
    return world


@pytest.mark.parametrize("name", ["paper_like", "staged", "many_impossible", "no_headroom"])
def test_pass_rates_are_probabilities_and_impossible_rows_stay_at_0(simulator, name):
    parameters = simulator.WORLDS[name]
    world, every_row = trained(simulator, parameters), np.arange(400)
    p = world.pass_rates(every_row)
    assert ((p >= 0) & (p <= 1)).all()
    assert (p[world.impossible] == 0).all()
    assert (p[~world.impossible] > 0).all()
    assert world.impossible.mean() == pytest.approx(parameters["impossible"])


@pytest.mark.parametrize("step_power", [0.0, 0.5, 1.0])
def test_what_is_remembered_of_a_row_helps_on_that_row_alone_and_fades(simulator, step_power):
    # No skill is learned and nothing wanders: all that can change is memory.
    parameters = simulator.WORLDS["no_headroom"] | {"rate": 0.0, "forgetting": 0.0, "wander": 0.0}
    parameters |= {"memory_rate": 0.1, "step_power": step_power}
    chosen, others = np.arange(40), np.arange(40, 400)
    world, fresh = trained(simulator, parameters, chosen=chosen), simulator.World(parameters, 400, 0)
    raised, before = world.pass_rates(chosen), fresh.pass_rates(chosen)
    assert (raised > before).all()
    np.testing.assert_array_equal(world.pass_rates(others), fresh.pass_rates(others))
    assert world.score() == fresh.score()
    world.step += 3000
    np.testing.assert_allclose(world.pass_rates(chosen), before, atol=1e-4)


def test_a_row_reads_the_same_however_often_it_is_read_within_a_step(simulator):
    world, rows = trained(simulator, simulator.WORLDS["paper_like"]), np.arange(50)
    np.testing.assert_array_equal(world.pass_rates(rows), world.pass_rates(rows))
    first = world.pass_rates(rows)
    world.step += 200
    assert (world.pass_rates(rows) != first)[~world.impossible[rows]].all()


def test_a_batch_without_a_mixed_group_changes_nothing(simulator):
    parameters = simulator.WORLDS["paper_like"] | {"wander": 0.0}
    world, rows = simulator.World(parameters, 100, 0), np.arange(100)
    before, score = world.pass_rates(rows), world.score()
    world.update(rows, np.arange(100) % 2.0)
    np.testing.assert_array_equal(world.pass_rates(rows), before)
    assert world.score() == score


def test_with_adam_more_groups_with_a_gradient_are_no_larger_step(simulator):
    for step_power, ratio in ((0.0, 1.0), (0.5, 0.5**0.5), (1.0, 0.5)):
        parameters = simulator.WORLDS["no_headroom"] | {"step_power": step_power, "forgetting": 0.0}
        gained = []
        for share in (0.5, 1.0):
            world, rows = simulator.World(parameters, 300, 0), np.arange(300)
            before, world.skill = world.levels.copy(), np.zeros(300, dtype=np.int64)
            world.update(rows, np.where(rows < 300 * share, 0.5, 1.0))
            gained.append((world.levels - before)[0])
        assert gained[0] / gained[1] == pytest.approx(ratio)


def test_a_chain_holds_a_skill_back_until_the_one_before_it_is_there(simulator):
    parameters = simulator.WORLDS["staged"] | {"wander": 0.0}
    world, rows = simulator.World(parameters, 800, 0), np.arange(800)
    before, last = world.pass_rates(rows), world.skill == 7
    world.levels[7] += 5.0
    np.testing.assert_array_equal(world.pass_rates(rows), before)
    world.levels[:7] += 5.0
    assert (world.pass_rates(rows) > before)[last & ~world.impossible].all()


def test_a_skill_that_is_not_trained_wears_off_no_further_than_its_floor(simulator):
    parameters = simulator.WORLDS["many_impossible"] | {"transfer": 0.0, "forgetting": 0.03, "memory_rate": 0.0}
    world = simulator.World(parameters, 400, 0)
    hardest = np.flatnonzero((world.skill == 4) & ~world.impossible)[:20]
    before = world.levels.copy()
    for _ in range(300):
        world.update(hardest, np.full(20, 0.5))
    assert world.levels[4] > before[4]
    np.testing.assert_allclose(world.levels[:4], world.floors[:4], atol=0.01)


@pytest.mark.parametrize(
    ("name", "ratio", "late", "mastered"),
    [
        ("paper_like", (0.15, 0.3), (0.05, 0.13), (0.6, 0.8)),
        ("staged", (0.3, 0.45), (0.25, 0.45), (0.2, 0.4)),
        ("many_impossible", (0.18, 0.28), (0.1, 0.22), (0.2, 0.35)),
        ("no_headroom", (0.87, 0.95), (0.8, 0.9), (0.0, 0.01)),
    ],
)
def test_a_uniform_draw_sees_the_world_that_is_described(simulator, name, ratio, late, mastered):
    runs = [simulator.simulate(simulator.WORLDS[name], {"sampler": "uniform"}, seed, SMALL) for seed in (0, 1)]
    for figure, (low, high) in (("ratio", ratio), ("late", late), ("mastered", mastered)):
        assert low <= np.mean([run[figure] for run in runs]) <= high
    for run in runs:
        assert run["lift"] == pytest.approx(1.0, abs=0.05)
        assert run["impossible"] == pytest.approx(simulator.WORLDS[name]["impossible"], abs=0.01)
        assert run["final"] > run["curve"][0]
        assert run["tenth"] < 0.12


def test_the_oracle_has_the_highest_lift_and_no_impossible_row(simulator):
    world = simulator.WORLDS["many_impossible"]
    runs = {arm: simulator.simulate(world, simulator.ARMS[arm], 0, SMALL) for arm in ("uniform", "robust", "oracle")}
    assert 1.3 < runs["robust"]["lift"] < runs["oracle"]["lift"]
    assert runs["oracle"]["impossible"] < 0.01 < runs["robust"]["impossible"] < runs["uniform"]["impossible"]


def test_a_run_is_a_function_of_its_seed(simulator):
    short = Namespace(**vars(SMALL) | {"steps": 20})
    first, again, other = (simulator.simulate(simulator.WORLDS["staged"], {}, seed, short) for seed in (3, 3, 4))
    for figure, value in first.items():
        np.testing.assert_array_equal(value, again[figure])
    assert (first["curve"] != other["curve"]).all()


@pytest.mark.parametrize(("half_life", "decay"), [(0.0, 0.0), (1.0, 0.5), (693.0, 0.999), (np.inf, 1.0)])
def test_a_half_life_gives_a_decay(simulator, half_life, decay):
    assert simulator.decay_of(half_life) == pytest.approx(decay, abs=1e-6)


def run(*arguments):
    sizes = ["--rows", "200", "--batch", "20", "--steps", "30", "--seeds", "0", "1"]
    command = [sys.executable, SCRIPT, *sizes, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def table(finished):
    assert finished.returncode == 0, finished.stderr[-3000:]
    _, _, *lines = finished.stdout.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in cells} == {len(cells[0])}
    assert set(cells[1]) == {"---"}
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def test_the_table_has_every_world_and_arm_and_printing_it_again_gives_the_same():
    arguments = ["--worlds", "staged", "no_headroom", "--arms", "uniform", "paper", "--set", "memory_rate=0"]
    finished = run(*arguments)
    assert finished.stdout == run(*arguments).stdout
    assert "200 rows, 30 batches of 20 x 8; mean over 2 seeds" in finished.stdout
    rows = table(finished)
    names = [(row["world"], row["arm"]) for row in rows]
    assert names == [(world, arm) for world in ("staged", "no_headroom") for arm in ("uniform", "paper")]
    for row in rows:
        value, error = map(float, row["ratio"].split(" ± "))
        assert 0 <= value <= 1
        assert error >= 0
        if row["arm"] == "uniform":
            assert row["final, over uniform"] == "0.00 ± 0.00"


def test_a_sweep_stands_beside_uniform_and_robust():
    arms = [row["arm"] for row in table(run("--worlds", "staged", "--sweep", "prior"))]
    assert arms[:2] == ["uniform", "robust"]
    assert arms[2:] == [f"prior {prior}, cooldown {share}" for prior in ("flat", "learned") for share in ("0", "0.2")]


def test_a_parameter_that_does_not_exist_is_named():
    finished = run("--set", "memory=1")
    assert finished.returncode == 2
    assert "no parameter 'memory'; there are slope" in finished.stderr
