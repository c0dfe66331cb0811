import numpy as np

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, ObservationError, SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers.posterior import BetaPosterior


def observed(num_samples=5, **settings):
    posterior = BetaPosterior(num_samples, **settings)
    posterior.observe([0, 3], [2, 8], [8, 8])
    posterior.observe([3, 1], [1, 0], [8, 8])
    return posterior


def assert_same_state(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == theirs[name].dtype
            assert value.tobytes() == theirs[name].tobytes(), name
        else:
            assert value == theirs[name], name


def test_three_steps_worked_by_hand():
    # Decays that are exact in binary, so that the comparison can be exact: lambda_1 = 1/2, lambda_2 = 3/4.
    posterior = BetaPosterior(3, decay_sampled=0.5, decay_unsampled=0.75)

    posterior.observe([0, 1], [3, 1], [4, 4])
    # row 0, eq. 5: alpha = 0/2 + 3, beta = 0/2 + 1; row 1: alpha = 0/2 + 1, beta = 0/2 + 3; row 2, eq. 6: 0 and 0
    assert posterior.alpha.tolist() == [3.0, 1.0, 0.0]
    assert posterior.beta.tolist() == [1.0, 3.0, 0.0]

    posterior.observe([0], [4], [4])
    # row 0, eq. 5: alpha = 3/2 + 4, beta = 1/2 + 0; row 1, eq. 6: alpha = 1 * 3/4, beta = 3 * 3/4
    assert posterior.alpha.tolist() == [5.5, 0.75, 0.0]
    assert posterior.beta.tolist() == [0.5, 2.25, 0.0]

    posterior.observe([2, 1], [0, 2], [4, 4])
    # row 0, eq. 6: alpha = 5.5 * 3/4, beta = 0.5 * 3/4; row 1, eq. 5: alpha = 0.75/2 + 2, beta = 2.25/2 + 2
    # row 2, eq. 5: alpha = 0, beta = 4
    assert posterior.alpha.tolist() == [4.125, 2.375, 0.0]
    assert posterior.beta.tolist() == [0.375, 3.125, 4.0]
    # means: (4.125 + 1) / (4.5 + 2), (2.375 + 1) / (5.5 + 2), (0 + 1) / (4 + 2)
    assert posterior.posterior_mean.tolist() == [5.125 / 6.5, 3.375 / 7.5, 1 / 6]
    assert posterior.visits.tolist() == [2, 2, 1]
    assert posterior.step == 3


def test_a_row_with_no_trials_decays_as_if_it_was_not_selected():
    unscored, absent = observed(), observed()
    unscored.observe([0, 1], [0, 3], [0, 8])
    absent.observe([1], [3], [8])
    assert_same_state(unscored.state_dict(), absent.state_dict())


def test_the_state_holds_only_the_rows_ever_visited_and_the_papers_decays_are_the_default():
    state = observed(1000).state_dict()
    assert state["sample_index"].tolist() == [0, 1, 3]
    # Row 0 as it was at its last update, step 1: the decay of step 2 is not applied yet.
    assert state["alpha"].tolist() == [2.0, 0.0, 0.2 * 8.0 + 1.0]
    assert (state["last_update"].tolist(), state["visits"].tolist()) == ([1, 2, 2], [1, 1, 2])
    scalars = [state[name] for name in ("step", "num_samples", "decay_sampled", "decay_unsampled")]
    assert scalars == [2, 1000, 0.2, 0.999]


IMPOSSIBLE = [  # rows, successes, trials, and what is said
    ([1, 2, 1], [0, 0, 0], [8, 8, 8], "2 distinct"),
    *(([5], [0], [8], "[0, 5)"), ([-1], [0], [8], "[-1]")),
    *(([1.0], [0], [8], "integers"), ([True], [0], [8], "integers")),
    *(([[1]], [[0]], [[8]], "vector"), ([[1], [1, 2]], [0], [8], "cannot be read"), ([1], [-1], [8], "-1.0")),
    *(([1], [9], [8], "successes 9.0"), ([1, 2], [0, np.nan], [8, 8], "Entry 1"), ([1], [0], [np.inf], "trials inf")),
    *(([1], [0], [2.0**54], "2**53"), ([1], [None], [8], "numbers"), ([1, 2], [0], [8], "(2,)")),
]


def test_impossible_observations_are_refused_and_change_nothing():
    posterior = observed()
    before = posterior.state_dict()
    for *groups, reason in IMPOSSIBLE:
        with refused(ObservationError, names=[reason]):
            posterior.observe(*groups)
        assert_same_state(posterior.state_dict(), before)


def test_a_posterior_without_rows_and_decays_outside_zero_and_one_are_refused():
    for num_samples in (0, -1, 2.0, True, "3", None):
        with refused(ConfigurationError, names=["num_samples", num_samples]):
            BetaPosterior(num_samples)
    for name in ("decay_sampled", "decay_unsampled"):
        for value in (-0.1, 1.1, np.nan, np.inf, None, "0.2", True):
            with refused(ConfigurationError, names=[name, value], offers=["[0, 1]"]):
                BetaPosterior(3, **{name: value})


def test_a_state_of_other_rows_or_with_other_fields_is_refused_by_naming_both_sides():
    posterior = observed()
    before = posterior.state_dict()
    with refused(SnapshotMismatchError, names=["num_samples", 6, 5]):
        posterior.load_state_dict(before | {"num_samples": 6})
    without_visits = {name: value for name, value in before.items() if name != "visits"}
    with refused(SnapshotMismatchError, names=["visits", "colour"]):
        posterior.load_state_dict(without_visits | {"colour": "red"})
    assert_same_state(posterior.state_dict(), before)


BROKEN = [
    *(("step", -1, "step is -1"), ("step", 2.0, "whole number"), ("step", 1, "last_update")),
    ("step", 2**53 + 1, "whole number"),  # the next steps must fit into int64
    *(("sample_index", np.array([0, 3, 1]), "sample_index"), ("sample_index", np.array([0, 1, 5]), "[0, 5)")),
    *(("sample_index", np.array([0, 1, 3], dtype=np.int32), "int32"), ("sample_index", [0, 1, 3], "list")),
    *(("alpha", np.array([1.0, 2.0]), "(2,)"), ("alpha", np.array([1, 2, 3]), "int64")),
    *(("alpha", np.array([1.0, value, 3.0]), "alpha") for value in (-2.0, np.nan)),
    ("beta", np.array([1.0, 2.0, 1.7e308]), "2**53"),  # its draws would be NaN
    *(("last_update", np.array(steps), "last_update") for steps in ([0, 2, 2], [1, 2, 3])),
    *(("visits", np.array([0, 1, 2]), "visits"), ("decay_unsampled", 2.0, "[0, 1]")),
]


def test_broken_numbers_in_a_state_are_refused_and_change_nothing():
    posterior = observed()
    before = posterior.state_dict()
    for name, value, reason in BROKEN:
        with refused(SnapshotCorruptError, names=[reason]):
            posterior.load_state_dict(before | {name: value})
        assert_same_state(posterior.state_dict(), before)
