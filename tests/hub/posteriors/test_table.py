"""The table of a posterior: the sampler's counts, row by row, and a snapshot that a stranger may have written."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.posteriors import make_table, trained
from tests.support.refusals import refused
from trl_vade import ThompsonSampler, load_snapshot, save_snapshot
from trl_vade.errors import SnapshotCorruptError
from trl_vade.hub.posteriors.table import bin_counts, posterior_table, text_histogram

FACTS = {"dataset_fingerprint": "f" * 64, "success_reward": "is_right", "base_model": "Qwen/Qwen2.5-VL-3B-Instruct"}
RUN = {"global_step": 40, "rollouts": 640, "seconds": {"step": 1.5}}


@pytest.fixture
def snapshot(tmp_path):
    sampler = trained(ThompsonSampler(10, seed=7, signal_aware_decay=True))
    metadata = FACTS | {"columns": ["prompt"], "source": "/home/me", "run": RUN}
    save_snapshot(tmp_path / "saved", sampler, metadata=metadata, sample_key=np.arange(-5, 5, dtype=np.int64))
    return load_snapshot(tmp_path / "saved")


@settings(max_examples=30)
@given(batches=st.integers(1, 30), decay=st.sampled_from([0.0, 0.5, 0.999, 1.0]), seed=st.integers(0, 99))
def test_the_counts_are_those_that_the_sampler_chooses_by(tmp_path_factory, batches, decay, seed):
    sampler = trained(ThompsonSampler(10, decay_unsampled=decay), batches, seed=seed)
    folder = tmp_path_factory.mktemp("saved")
    save_snapshot(folder, sampler, sample_key=np.arange(10))
    table, posterior = posterior_table(load_snapshot(folder)), sampler.posterior
    visited = np.flatnonzero(posterior.visits)
    assert table.index.tolist() == visited.tolist()
    np.testing.assert_array_equal(table.alpha, posterior.alpha[visited])
    np.testing.assert_array_equal(table.beta, posterior.beta[visited])
    np.testing.assert_array_equal(table.pass_rate, posterior.posterior_mean[visited])
    np.testing.assert_array_equal(table.visits, posterior.visits[visited])
    np.testing.assert_array_equal(table.last_step, posterior.last_update[visited])


def test_the_facts_are_those_that_the_snapshot_has(snapshot):
    table = posterior_table(snapshot)
    assert table.sample_id == [f"{(row - 5) % 2**64:016x}" for row in table.index.tolist()]
    decays = {"decay_sampled": 0.2, "decay_unsampled": 0.999, "signal_aware_decay": True}
    numbers = {"global_step": 40, "generation_batches": 6, "num_samples": 10, "rollouts": 640}
    assert table.metadata == FACTS | decays | numbers


IMPOSSIBLE = {
    **dict.fromkeys(("alpha", "beta"), (-1.0, float("inf"), float("nan"), 1e300)),
    **{"sample_index": (-1, 10), "visits": (0, 2**60, 7), "last_update": (0, 7), "step": (-1, 2**60, "6", True)},
    **{"num_samples": (0, -1, 5, 2**60, "10"), "decay_sampled": (2.0, None), "signal_aware_decay": (1,)},
    "decay_unsampled": (-0.1, float("nan"), "1"),
}


def test_what_no_run_can_have_left_is_refused(snapshot):
    sound = snapshot.sampler_state["posterior"]
    for name, values in IMPOSSIBLE.items():
        for value in values:
            changed = value
            if isinstance(sound[name], np.ndarray):
                changed = sound[name].copy()
                changed[0] = value
            with refused(SnapshotCorruptError):
                posterior_table(replace(snapshot, sampler_state={"posterior": sound | {name: changed}}))
    for step in (-1, "40", 10**12 + 1, None, 1.0):
        with refused(SnapshotCorruptError, names=["global_step"]):
            posterior_table(replace(snapshot, metadata={"run": {"global_step": step}}))


def rates_table(pass_rate):
    table = make_table({f"row-{number}": (0, 0) for number in range(len(pass_rate))})
    return replace(table, pass_rate=np.array(pass_rate, dtype=np.float64))


def test_a_rate_on_an_edge_belongs_to_the_bin_that_begins_with_it():
    edges = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert bin_counts([0.05, 1.0]).tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    for number, (edge, line) in enumerate(zip(edges, text_histogram(rates_table([])).split("\n"), strict=True)):
        assert line.startswith(str(edge))
        assert bin_counts([edge]).tolist() == [place == number for place in range(10)]
