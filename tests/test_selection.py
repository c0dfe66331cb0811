"""`OnTimeSelection` with a real data set and a real Accelerator: what it loads, knows and reports, and when."""

import itertools
import math
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from conftest import numbered_rows, says_a_digit
from datasets import Dataset
from PIL import Image
from trl import GRPOConfig, GRPOTrainer

from trl_vade import BetaPosterior, ThompsonSampler, UniformSampler
from trl_vade.feedback import group_outcomes
from trl_vade.selection import OnTimeSelection
from trl_vade.selection_log import SelectionLog

NAN = float("nan")


@pytest.fixture
def make_selection(tmp_path):
    """A selection over 6 rows, 2 rows of 4 completions a generation batch, unless told otherwise."""

    def make(dataset=None, sampler=None, *, num_groups=2, num_generations=4, accelerator=None, kind=OnTimeSelection):
        dataset = numbered_rows(6) if dataset is None else dataset
        return kind(
            sampler or UniformSampler(len(dataset), seed=3),
            dataset,
            num_groups=num_groups,
            num_generations=num_generations,
            accelerator=accelerator or Accelerator(cpu=True),
            log=SelectionLog(tmp_path / "out"),
        )

    return make


def process(index, world):
    """One of several processes, as far as `_load`'s arithmetic and a broadcast from process 0 are concerned.

    A last resort: real processes are started in tests/integration. Every replica draws the same rows here.
    """
    return SimpleNamespace(
        process_index=index, num_processes=world, is_main_process=index == 0, device=torch.device("cpu")
    )


def score(selection, *groups, threshold=0.5, global_step=0):
    """Feed the rewards of each group of the batch in flight back, and return the metrics."""
    rewards = np.array(groups, dtype=np.float64).ravel()
    outcomes = group_outcomes(rewards, selection.in_flight.sample_index, threshold=threshold)
    return selection.record(outcomes, global_step)


def ids(rows):
    return [row["id"] for row in rows]


# -------------------------------------------------------------------------- the rows are those of the stock loader


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps_per_generation": 2, "num_iterations": 2},
        {"per_device_train_batch_size": 20},  # 24 rows are 4 batches of 5, and 4 rows are dropped
    ],
    ids=str,
)
def test_uniform_delivers_batch_by_batch_what_the_stock_loader_does(
    text_model_path, text_rows, make_args, make_selection, changes
):
    args = make_args(GRPOConfig, **changes)
    stock = GRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    loader = stock.get_train_dataloader()
    repeats = args.num_iterations * args.steps_per_generation
    selection = make_selection(
        text_rows,
        UniformSampler(len(text_rows), seed=args.seed),
        num_groups=args.generation_batch_size // args.num_generations,
        num_generations=args.num_generations,
    )
    for _epoch in range(2):
        batches = list(loader)
        assert len(batches) == 24 // selection.num_groups * repeats
        for theirs in batches[::repeats]:
            assert selection.choose() == theirs


def test_the_items_of_a_group_can_be_written_into_one_by_one(make_selection):
    rows = make_selection().choose()
    assert ids(rows)[:4] == [rows[0]["id"]] * 4
    rows[0]["answer"] = "mine"
    assert all("answer" not in row for row in rows[1:])


# -------------------------------------------------------------------------------------------- nothing decoded twice


def test_each_chosen_row_is_decoded_once_and_no_other_row_is(make_selection, monkeypatch):
    pictures = [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(6)]
    dataset = numbered_rows(6, image=lambda i: pictures[i])
    decode, decoded = datasets.Image.decode_example, []

    def counting(self, value, token_per_repo_id=None):
        image = decode(self, value, token_per_repo_id)
        decoded.append(image.getpixel((0, 0))[0])
        return image

    monkeypatch.setattr(datasets.Image, "decode_example", counting)
    selection = make_selection(dataset)
    assert decoded == []
    for _ in range(3):
        rows = selection.choose()
        chosen = selection.in_flight.sample_index.tolist()
        assert sorted(decoded) == sorted(chosen)
        assert [row["image"].getpixel((0, 0))[0] for row in rows] == [i for i in chosen for _ in range(4)]
        score(selection, [1, 0, 0, 0], [1, 0, 0, 0])
        decoded.clear()


def test_a_transform_of_the_users_runs_once_for_each_chosen_row(make_selection):
    seen = []

    def transform(batch):
        seen.extend(batch["id"])
        return batch | {"shouted": [name.upper() for name in batch["id"]]}

    rows = make_selection(numbered_rows(6).with_transform(transform)).choose()
    assert len(seen) == 2
    assert [row["shouted"] for row in rows] == [name.upper() for name in seen for _ in range(4)]


# ------------------------------------------------------------------------------------------------ several processes


@pytest.mark.parametrize(
    ("world", "num_groups", "num_generations"),
    [
        (2, 2, 4),
        (4, 2, 4),  # half a group each
        (2, 3, 4),  # the middle group lies on both
        (3, 4, 6),  # groups of 6 in slices of 8
        (5, 2, 5),  # slices of 2 over groups of 5
    ],
)
def test_the_slices_of_the_processes_make_up_the_batch_of_one(make_selection, world, num_groups, num_generations):
    sizes = {"num_groups": num_groups, "num_generations": num_generations}
    alone = make_selection(**sizes).choose()
    slices = [make_selection(accelerator=process(index, world), **sizes).choose() for index in range(world)]
    assert {len(part) for part in slices} == {num_groups * num_generations // world}
    assert [row for part in slices for row in part] == alone


def test_a_process_decodes_only_the_rows_of_its_own_slice(make_selection):
    decoded = []

    def transform(batch):
        decoded.extend(batch["id"])
        return batch

    dataset = numbered_rows(6).with_transform(transform)
    for index in range(2):
        rows = make_selection(dataset, accelerator=process(index, 2), num_groups=4).choose()
        assert decoded == list(dict.fromkeys(ids(rows)))
        assert len(decoded) == 2
        decoded.clear()


def test_only_the_main_process_writes_the_log(make_selection):
    other = make_selection(accelerator=process(1, 2))
    other.choose()
    score(other, [1, 0, 0, 0], [0, 0, 0, 0])
    assert other.log.read() == []
    main = make_selection(accelerator=process(0, 2))
    main.choose()
    score(main, [1, 0, 0, 0], [0, 0, 0, 0])
    assert len(main.log.read()) == 1


@pytest.mark.parametrize(("image_of", "answer"), [(lambda i: Image.new("RGB", (4, 4)), True), (lambda i: None, False)])
def test_one_process_alone_says_whether_its_batch_has_images_and_leaves_the_prompts_alone(
    make_selection, text_rows, image_of, answer
):
    columns = text_rows.features | {"image": datasets.Image()}
    rows = [{**row, "image": image_of(i)} for i, row in enumerate(text_rows)]
    selection = make_selection(Dataset.from_list(rows, features=datasets.Features(columns)))
    rows = selection.choose()
    assert selection.images_on_all_processes is answer
    assert [row["prompt"] for row in rows] == [text_rows[int(row["id"][4:])]["prompt"] for row in rows]


# ---------------------------------------------------------------------------------------- rows without an image


def test_mixed_rows_of_a_real_data_set_come_out_as_lists(make_selection):
    picture = Image.new("RGB", (4, 4))
    dataset = numbered_rows(6, image=lambda i: picture if i % 2 else None)
    rows = make_selection(dataset, num_groups=6).choose()
    assert [len(row["images"]) for row in rows] == [int(row["id"][-1]) % 2 for row in rows]


# ------------------------------------------------------------------------------------------- rollout initialisation


def initialise(selection, rewards_of):
    """Score every batch of `initial_batches`; `rewards_of(row)` gives the rewards of its G completions."""
    seen = []
    for rows in selection.initial_batches():
        seen.extend(ids(rows))
        assert score(selection, *(rewards_of(row) for row in selection.in_flight.sample_index.tolist())) == {}
    selection.finish_initialisation()
    return seen


def test_initialisation_covers_every_row_once_and_is_one_step(make_selection):
    selection = make_selection(numbered_rows(5), num_groups=2)
    seen = initialise(selection, lambda row: [1.0] * row + [0.0] * (4 - row))
    assert seen == [f"row-{i}" for i in range(5) for _ in range(4)]
    posterior = selection.sampler.posterior
    assert posterior.alpha.tolist() == [0, 1, 2, 3, 4]
    assert posterior.beta.tolist() == [4, 3, 2, 1, 0]
    assert posterior.visits.tolist() == [1] * 5
    assert posterior.step == 1
    assert selection.rollouts == 20


def test_initialisation_counts_completions_without_a_score_as_no_trials(make_selection):
    selection = make_selection(numbered_rows(3), num_groups=2)
    initialise(selection, lambda row: [[1, NAN, NAN, 0], [NAN] * 4, [1, 1, 1, 1]][row])
    assert selection.sampler.posterior.alpha.tolist() == [1, 0, 4]
    assert selection.sampler.posterior.beta.tolist() == [1, 0, 0]
    assert selection.sampler.posterior.visits.tolist() == [1, 0, 1]


def test_rows_that_fill_the_last_batch_up_are_added_and_no_rollout_is_thrown_away(make_selection):
    # 5 rows x 2 completions over 4 processes, 4 rows at a time: the last batch needs a second row, which is row 0.
    sizes = {"num_groups": 4, "num_generations": 2}
    slices = []
    for index in range(4):
        selection = make_selection(numbered_rows(5), accelerator=process(index, 4), **sizes)
        slices.append([ids(rows) for rows in selection.initial_batches()])
    batches = [list(itertools.chain.from_iterable(parts)) for parts in zip(*slices, strict=True)]
    assert batches == [[f"row-{i}" for i in (0, 0, 1, 1, 2, 2, 3, 3)], [f"row-{i}" for i in (4, 4, 0, 0)]]

    selection = make_selection(numbered_rows(5), accelerator=process(0, 4), **sizes)
    initialise(selection, lambda row: [1.0, 0.0] if row == 0 else [1.0, 1.0])
    assert selection.sampler.posterior.alpha.tolist() == [2, 2, 2, 2, 2]
    assert selection.sampler.posterior.beta.tolist() == [2, 0, 0, 0, 0]
    assert selection.rollouts == 12


def test_the_log_says_what_share_of_the_initial_groups_had_a_gradient(make_selection):
    selection = make_selection(numbered_rows(4), num_groups=2)
    initialise(selection, lambda row: [1.0] * row + [0.0] * (4 - row))
    (line,) = selection.log.read()
    assert line["effective_gradient_ratio"] == 0.75
    assert line["rollouts"] == 16
    assert line["predicted_effective_ratio"] == pytest.approx(0.6)  # Beta(1, 1), G = 4: 1 - 2/5


def test_initial_groups_of_equal_fractions_have_no_gradient_in_the_log_either(make_selection):
    selection = make_selection(numbered_rows(4), num_groups=2)
    for _ in selection.initial_batches():
        score(selection, [0.5] * 4, [0.5] * 4, threshold=None)
    selection.finish_initialisation()
    assert selection.log.read()[0]["effective_gradient_ratio"] == 0.0


def test_the_step_after_initialisation_builds_on_it(make_selection):
    selection = make_selection(numbered_rows(4), ThompsonSampler(4), num_groups=2)
    initialise(selection, lambda row: [1.0, 1.0, 0.0, 0.0])
    selection.choose()
    metrics = score(selection, [1, 1, 0, 0], [1, 1, 0, 0])
    assert metrics["coverage"] == 1.0
    assert metrics["brier"] == 0.0
    assert metrics["rollouts"] == 16 + 8
    assert metrics["staleness"] == 0.0
    assert selection.sampler.posterior.step == 2


# ----------------------------------------------------------------------------------------------------------- metrics


def test_the_metrics_of_two_generation_batches_worked_out_by_hand(make_selection):
    selection = make_selection(numbered_rows(4), UniformSampler(4, decay_sampled=0.5, decay_unsampled=1.0))
    selection.choose()
    first = score(selection, [1, 0, 0, 0], [1, 1, 1, 1])
    assert first.pop("selection_seconds") > 0
    assert first == {
        "coverage": 0.5,
        "mean_pass_rate": pytest.approx((2 / 6 + 5 / 6 + 1 / 2 + 1 / 2) / 4),
        "effective_gradient_ratio": 0.5,
        "predicted_effective_ratio": pytest.approx(1 - 2 / 5),  # of Beta(1, 1) with G = 4
        "brier": pytest.approx(((1 / 2 - 1 / 4) ** 2 + (1 / 2 - 1) ** 2) / 2),
        "selected_pass_rate": pytest.approx((1 / 4 + 1) / 2),
        "staleness": 0.0,
        "rollouts": 8.0,
    }
    selection.choose()  # the other two rows: of them nothing is known yet
    second = score(selection, [0, 0, 0, 0], [NAN, NAN, NAN, NAN])
    assert second.pop("selection_seconds") > 0
    assert second == {
        "coverage": 0.75,
        "mean_pass_rate": pytest.approx((2 / 6 + 5 / 6 + 1 / 6 + 1 / 2) / 4),
        "effective_gradient_ratio": 0.0,
        "predicted_effective_ratio": pytest.approx(0.6),
        "brier": pytest.approx((1 / 2) ** 2),
        "selected_pass_rate": 0.0,
        "staleness": 0.0,
        "rollouts": 16.0,  # a completion without a score was paid for all the same
    }


def test_what_is_predicted_is_what_the_posterior_said_before_the_rollouts(make_selection):
    selection = make_selection(numbered_rows(1), UniformSampler(1, decay_sampled=1.0), num_groups=1, num_generations=2)
    selection.choose()
    score(selection, [1, 0])
    selection.choose()
    metrics = score(selection, [0, 0])
    # Beta(2, 2): E[p^2] = E[(1-p)^2] = (2 * 3) / (4 * 5) = 0.3.
    assert metrics["predicted_effective_ratio"] == pytest.approx(1 - 2 * 0.3)
    assert metrics["brier"] == pytest.approx(0.25)
    assert metrics["mean_pass_rate"] == pytest.approx(2 / 6)


def test_a_batch_without_any_score_has_unknown_metrics_and_still_counts(make_selection):
    selection = make_selection()
    selection.choose()
    metrics = score(selection, [NAN] * 4, [NAN] * 4)
    unknown = {name for name, value in metrics.items() if math.isnan(value)}
    assert unknown == {"brier", "effective_gradient_ratio", "selected_pass_rate"}
    assert metrics["rollouts"] == 8
    assert metrics["coverage"] == 0
    assert selection.sampler.posterior.step == 1


def test_rewards_for_a_batch_that_nobody_chose_are_an_error(make_selection):
    selection = make_selection()
    with pytest.raises(RuntimeError, match="nobody chose"):
        _ = selection.in_flight
    selection.choose()
    score(selection, [1, 0, 0, 0], [1, 0, 0, 0])
    with pytest.raises(RuntimeError, match="nobody chose"):
        _ = selection.in_flight


# --------------------------------------------------------------------------------------------------------- staleness


class LookingAhead(OnTimeSelection):
    """An adaptive torch Sampler behind a loader that fetches ahead: batch k + depth is chosen before k is scored."""

    depth = 1

    def choose(self):
        ahead = self.__dict__.setdefault("ahead", [])
        while len(ahead) <= self.depth:
            rows = super().choose()
            ahead.append((rows, self._in_flight))
        rows, self._in_flight = ahead.pop(0)
        return rows


class LookingFurtherAhead(LookingAhead):
    depth = 3


@pytest.mark.parametrize(
    ("kind", "staleness"),
    [
        (OnTimeSelection, [0, 0, 0, 0, 0, 0]),
        (LookingAhead, [0, 1, 1, 1, 1, 1]),
        (LookingFurtherAhead, [0, 1, 2, 3, 3, 3]),
    ],
)
def test_staleness_counts_the_scored_batches_that_a_choice_did_not_know(make_selection, kind, staleness):
    selection = make_selection(kind=kind)
    measured = []
    for _ in range(6):
        selection.choose()
        measured.append(score(selection, [1, 0, 0, 0], [1, 0, 0, 0])["staleness"])
    assert measured == staleness


# ------------------------------------------------------------------------------------------------------------ resume


def test_a_selection_that_goes_on_from_a_saved_state_does_what_the_first_one_did(make_selection):
    def play(selection, steps):
        rewards = np.random.default_rng(selection.sampler.posterior.step).random((steps, 2, 4)).round()
        return [(ids(selection.choose()), score(selection, *rewards[i])) for i in range(steps)]

    first = make_selection(sampler=ThompsonSampler(6, seed=5))
    play(first, 3)
    sampler_state, totals = first.sampler.state_dict(), first.state_dict()
    went_on = play(first, 4)
    lines = first.log.read()

    second = make_selection(sampler=ThompsonSampler(6, seed=5))
    second.sampler.load_state_dict(sampler_state)
    second.load_state_dict(totals)
    assert len(second.log.read()) == 3  # of the same directory: what came after the save is dropped
    resumed = play(second, 4)
    assert [rows for rows, _ in resumed] == [rows for rows, _ in went_on]
    for (_, ours), (_, theirs) in zip(resumed, went_on, strict=True):
        assert ours | {"selection_seconds": 0} == theirs | {"selection_seconds": 0}
    assert second.log.read() == lines


def test_the_saved_totals_do_not_change_with_the_run(make_selection):
    selection = make_selection()
    totals = selection.state_dict()
    selection.choose()
    score(selection, [1, 0, 0, 0], [1, 0, 0, 0])
    assert totals == {"rollouts": 0, "seconds": {"selection": 0.0, "generation": 0.0, "step": 0.0}}


def test_selection_inside_a_timed_block_is_not_counted_twice(make_selection):
    selection = make_selection()
    with selection.timed("generation"):
        selection.choose()
        before = selection.seconds["selection"]
        selection.seconds["selection"] += 1000.0  # as if the choice had taken that long
    assert before > 0
    assert selection.seconds["generation"] < 0  # the 1000 seconds that nobody waited for were left out


def test_the_log_replays_to_the_posterior_of_the_sampler(make_selection):
    selection = make_selection(sampler=ThompsonSampler(6, seed=1))
    random = np.random.default_rng(0)
    for _ in range(9):
        selection.choose()
        score(selection, *random.random((2, 4)).round())
    replayed = BetaPosterior(6)
    for line in selection.log.read():
        replayed.observe(line["sample_index"], line["successes"], line["trials"])
    assert replayed.alpha.tolist() == selection.sampler.posterior.alpha.tolist()
    assert replayed.beta.tolist() == selection.sampler.posterior.beta.tolist()


# ------------------------------------------------------------------------------------------------------- fingerprint
