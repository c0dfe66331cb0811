"""The rows that a report shows."""

import numpy as np

from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.selection.report.notable import BEGINNING, Beginnings, both_ends, replayed

NUM_ROWS = 12


def watched(groups):
    """Let a posterior and the beginnings observe groups of 8: a list of {row: successes} a batch."""
    posterior, beginnings = BetaPosterior(NUM_ROWS), Beginnings(NUM_ROWS)
    for batch in groups:
        rows, successes = np.array([*batch], dtype=np.int64), np.array([*batch.values()], dtype=float)
        posterior.observe(rows, successes, np.full(len(batch), 8.0))
        beginnings.observe(rows, successes, np.full(len(batch), 8.0))
    return posterior, beginnings


def test_the_most_changed_rows_are_those_that_left_their_beginning():
    learned, forgotten, steady = [0] * BEGINNING + [8] * 4, [6] * BEGINNING + [1] * 4, [4] * (BEGINNING + 4)
    groups = [dict(zip((3, 5, 7), batch, strict=True)) for batch in zip(learned, forgotten, steady, strict=True)]
    posterior, beginnings = watched([*groups, {9: 0}])
    assert beginnings.most_changed(posterior) == [3, 5, 7]
    assert beginnings.most_changed(posterior, 1) == [3]


def test_a_row_that_was_not_seen_after_its_beginning_has_not_changed():
    posterior, beginnings = watched([{1: 0}] * BEGINNING)
    assert beginnings.most_changed(posterior) == []


def test_a_group_without_a_score_is_no_beginning():
    beginnings, posterior = Beginnings(2), BetaPosterior(2)
    for successes, trials in [(0, 0), *[(0, 8)] * BEGINNING, (8, 8)]:
        both = np.array([1]), np.array([float(successes)]), np.array([float(trials)])
        posterior.observe(*both)
        beginnings.observe(*both)
    assert beginnings.most_changed(posterior) == [1]


def test_the_lines_of_a_log_give_the_same_beginnings_and_a_warm_start_is_none():
    groups = [{row: (row + batch) % 9 for row in range(batch % 3, NUM_ROWS, 2)} for batch in range(9)]
    lines = [{"sample_index": [*g], "successes": [*g.values()], "trials": [8] * len(g)} for g in groups]
    posterior, live = watched(groups)
    warm = {"warm_start": "user/repo", "sample_index": [0], "successes": [99], "trials": [99]}
    assert replayed(Beginnings(NUM_ROWS), [warm, *lines]).most_changed(posterior) == live.most_changed(posterior)


def test_both_ends_are_in_order_ties_by_key_and_no_row_is_at_both():
    posterior, _ = watched([{0: 8, 1: 0, 2: 4, 3: 0, 4: 8}])
    keys = np.array([5, -1, 7, 3, 2, *range(10, 17)])  # as text, -1 is the last one
    assert both_ends(posterior, keys, 2) == ([3, 1], [0, 4])
    assert both_ends(posterior, keys, 4) == ([3, 1, 2, 4], [0])
    assert both_ends(BetaPosterior(NUM_ROWS), keys) == ([], [])
