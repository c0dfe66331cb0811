"""The warm-start benchmark: its arithmetic, on records made by hand."""

import pytest

from eval.benchmarks import warm_start as benchmark


def record(arm, seed, ratio, **changes):
    made = {"arm": arm, "seed": seed, "ratio": ratio, "rollouts": [512 * (i + 1) for i in range(len(ratio))]}
    return made | {"score": 0.5} | changes


PRIOR = [0.2] * 6 + [0.6] * 6  # the mean over five reaches 0.6 with the eleventh


def test_the_target_is_the_mean_of_the_second_half_of_the_prior_run():
    prior = record("prior", 1, PRIOR)
    found = benchmark.figures(prior, prior)
    assert found["target"] == pytest.approx(0.6)
    assert (found["batches_to_target"], found["rollouts_to_target"]) == (11, 11 * 512)
    assert found["first_10"] == pytest.approx((6 * 0.2 + 4 * 0.6) / 10)
    assert found["whole"] == pytest.approx(0.4)


def test_initial_rollouts_are_counted_and_a_run_that_starts_above_the_target_needs_a_window():
    prior, other = record("prior", 1, PRIOR), record("rollout", 1, [0.7] * 12)
    other["rollouts"] = [8192 + count for count in other["rollouts"]]
    found = benchmark.figures(other, prior)
    assert (found["batches_to_target"], found["rollouts_to_target"]) == (5, 8192 + 5 * 512)


def test_a_target_that_is_never_reached_is_said():
    records = [record("prior", seed, PRIOR) for seed in (1, 2)]
    records += [record("warm", 1, [0.7] * 12), record("warm", 2, [0.1] * 12)]
    lines = benchmark.table(records).splitlines()
    assert lines[0] == "Targets by seed: 1: 0.600, 2: 0.600"
    assert "| generation batches to the target | 11 (11 to 11) | reached in 1 of 2 |" in lines
    assert "| ratio, first 10 | 0.360 (0.360 to 0.360) | 0.400 (0.100 to 0.700) |" in lines


def test_each_arm_is_held_against_the_prior_run_of_its_own_seed():
    records = [record("prior", 1, PRIOR), record("prior", 2, [0.1] * 12), record("warm", 2, [0.2] * 12)]
    assert "| generation batches to the target | 8 (5 to 11) | 5 (5 to 5) |" in benchmark.table(records)


@pytest.mark.parametrize("arm", benchmark.ARMS)
def test_every_arm_is_a_configuration_that_works(arm, make_args, tmp_path):
    args = make_args(**benchmark.ARMS[arm](str(tmp_path)))
    assert args.vade_posterior_init in ("prior", "rollout", str(tmp_path))
