"""`VADEGRPOTrainer` with variants of its questions: problems side by side, own posteriors, advantages, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import ImageOps

from tests.support.marks import slow, slow_but
from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from tests.support.rows import text_of, variants_of_text_rows, with_variants
from tests.support.runs import largest_difference, logged, rows_with_images, says_a_digit, weights
from trl_vade import ConfigurationError, VADEGRPOTrainer
from trl_vade.trainer.batch import GenerationBatch
from trl_vade.trainer.variants import diva_advantages, posterior_difficulty, standardised


@pytest.fixture
def vary(made):
    """`made` of rows with variants."""
    return lambda reward=says_a_digit, rows=None, **settings: made(
        reward, variants_of_text_rows() if rows is None else rows, **{"vade_variants": "of"} | settings
    )


@pytest.fixture
def varied(vary):
    """`vary`, and it trains."""

    def train(*arguments, **settings):
        trainer = vary(*arguments, **settings)
        trainer.train()
        return trainer

    return train


def of_kind(right):
    """A reward that looks at the kind: the k-th completion of a group is right if k is below the kind's number."""

    def reward(completions, kind, **columns):
        return [float(place % 4 < right[each]) for place, each in enumerate(kind)]

    return reward


def noting(seen):
    def noted(completions, **columns):
        seen.append({name: columns[name] for name in ("of", "kind", "id")})
        return says_a_digit(completions, **columns)

    return noted


# ------------------------------------------------------------------------------------------------ which rows


@pytest.mark.parametrize("sampler", slow_but(["thompson"], ["thompson", "greedy", "uniform"]))
@pytest.mark.parametrize("match", ["posterior", "difficulty"])
def test_each_original_is_followed_by_groups_of_its_own_variants(varied, sampler, match):
    seen = []
    trainer = varied(noting(seen), vade_sampler=sampler, vade_variant_match=match, max_steps=3)
    assert len(seen) == 3
    for batch in seen:
        groups = [{column: {*batch[column][start : start + 4]} for column in batch} for start in range(0, 16, 4)]
        assert all(len(values) == 1 for group in groups for values in group.values())
        assert [group["kind"] == {"original"} for group in groups] == [True, False] * 2
        assert groups[0]["of"] == groups[1]["of"] != groups[2]["of"] == groups[3]["of"]
    assert logged(trainer, "vade/selected_share/original") == [0.5] * 3


def test_two_variants_of_a_problem_are_of_two_kinds(varied):
    seen = []
    varied(noting(seen), per_device_train_batch_size=12, vade_variant_groups=2, max_steps=3)
    for batch in seen:
        assert batch["kind"][0] == "original"
        assert (len({*batch["kind"]}), len({*batch["of"]})) == (3, 1)


def test_without_groups_each_row_is_chosen_by_itself(varied):
    seen, refills = [], {"vade_dynamic_sampling": True}
    trainer = varied(noting(seen), vade_variant_groups=0, vade_stratify_by="kind", max_steps=4, **refills)
    assert any(kind != "original" for batch in seen for kind in batch["kind"][4:8])
    assert logged(trainer, "vade/original_reward")
    assert not logged(trainer, "vade/dead_problems")


def test_an_original_that_is_never_solved_keeps_its_own_counts_beside_a_variant_that_is(varied):
    trainer = varied(of_kind({"original": 0, "hint-1": 2, "hint-2": 4, "text": 0}), vade_variant_groups=3)
    rows, posterior = trainer.train_dataset, trainer.selection.sampler.posterior
    kinds = np.array(rows["kind"])[posterior.visited]
    alpha, beta = posterior.alpha[posterior.visited], posterior.beta[posterior.visited]
    assert (alpha[kinds == "original"] == 0).all()
    assert (beta[kinds == "original"] > 0).all()
    assert (beta[kinds == "hint-2"] == 0).all()
    wanted = {"vade/original_reward": 0.0, "reward": 6 / 16, "vade/dead_problems": 0.0}
    wanted |= {"vade/effective_gradient_ratio/hint-1": 1.0, "vade/effective_gradient_ratio/original": 0.0}
    assert {name: logged(trainer, name) for name in wanted} == {name: [value] * 6 for name, value in wanted.items()}


def test_problems_with_too_few_variants_are_told_and_never_chosen(varied, caplog):
    seen = []
    varied(noting(seen), variants_of_text_rows(of=lambda number: number % 2), max_steps=3)
    assert "12 of 24 problems" in caplog.text
    assert all(int(of.removeprefix("row-")) % 2 for batch in seen for of in batch["of"])


def test_initial_rollouts_cover_every_variant_and_are_not_paired(varied):
    trainer = varied(vade_posterior_init="rollout", vade_advantage="diva", max_steps=1)
    assert len(trainer.selection.sampler.posterior.visited) == 24 * 4


def test_images_are_those_of_the_variant(varied, vision_model_path):
    rows = rows_with_images(8)
    negatives = [[{"kind": "negative", "images": [ImageOps.invert(each) for each in row["images"]]}] for row in rows]
    known = {image.tobytes() for ((variant,),) in zip(negatives, strict=True) for image in variant["images"]}
    seen = []

    def noted(completions, images, kind, **columns):
        shown = [image.convert("RGB").tobytes() in known for image, *_ in images]
        seen.extend(zip(kind, shown, strict=True))
        return [float(place % 2) for place in range(len(completions))]

    varied(noted, with_variants(rows, negatives), model=vision_model_path, vade_advantage="diva", max_steps=1)
    assert {*seen} == {("original", False), ("negative", True)}


def test_evaluation_sees_no_variants(vary, caplog):
    seen, rows = [], variants_of_text_rows()
    trainer = vary(noting(seen), rows, more={"eval_dataset": rows}, per_device_eval_batch_size=4)
    assert "72 of 96 rows" in caplog.text
    trainer.evaluate()
    assert {kind for batch in seen for kind in batch["kind"]} == {"original"}


def test_an_overlong_original_takes_its_variants_along(vary):
    def longer(row):
        return {"prompt": [{"role": "user", "content": "say a digit " * 99}]} if row["id"] == "row-3" else {}

    rows = vary(rows=variants_of_text_rows().map(longer), vade_max_prompt_length=100).train_dataset
    assert "row-3" not in rows["of"]
    assert len(rows) == 23 * 4


def test_a_run_goes_on_from_a_posterior_of_the_originals(run, varied, text_rows):
    plain = run(max_steps=2, save_strategy="steps", save_steps=2)
    trainer = varied(vade_posterior_init=plain.args.output_dir, vade_warm_start_discount=1.0, max_steps=1)
    first = trainer.selection.feedback.log.read()[0]
    ids = {trainer.train_dataset[row]["id"] for row in first["sample_index"]}
    assert ids == {text_rows[row]["id"] for row in plain.selection.sampler.posterior.visited.tolist()}


# ------------------------------------------------------------------------------------------------ advantages

REWARDS = np.array([[[1, 0, 0, 0, 0], [1, 1, 1, 0, 1]], [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]], dtype=float)
DIFFICULTY = np.array([[5.0, 3.0], [9.0, 6.0]])
GOLDEN = {(0, 0): (3.3281, -1.4447), (0, 1): (1.4447, -3.3281), (1, 0): (None, -0.2796), (1, 1): (4.7677, -0.9402)}
close = {"abs": 1e-4}


def test_the_worked_batch():
    assert standardised(REWARDS, 2)[0, 0, :2] == pytest.approx([1.7889, -0.4472], **close)
    assert standardised(REWARDS, (1, 2))[1, 1, :2] == pytest.approx([-0.3162, 2.8460], **close)
    found = diva_advantages(REWARDS, DIFFICULTY)
    for (problem, variant), (right, wrong) in GOLDEN.items():
        for reward, advantage in zip(REWARDS[problem, variant], found[problem, variant], strict=True):
            assert advantage == pytest.approx(right if reward else wrong, **close)
    assert posterior_difficulty(np.array([1, 0.75, 0.5, 0.25, 0])).tolist() == [1, 3, 5, 7, 9]
    with refused(ConfigurationError, ["2", "vade_advantage"], ["reward_weights"]):
        diva_advantages(REWARDS * 2, DIFFICULTY)


def test_the_range_of_small_rewards_shrinks_their_advantages():
    rewards = np.array([[[0, 0, 0, 0, 0.1]]])
    local = standardised(rewards, 2)
    assert local[0, 0, [0, 4]] == pytest.approx([-0.4472, 1.7888], **close)
    once = np.ptp(rewards) * local
    assert once[0, 0, [0, 4]] == pytest.approx([-0.0447, 0.1789], **close)
    # The batch holds one variant, so local and global advantages are the same, and standardised already.
    assert diva_advantages(rewards, np.array([[5.0]])) == pytest.approx(2 * once, abs=1e-3)


def test_the_weights_by_difficulty():
    rewards = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    even = diva_advantages(rewards, np.array([[5.0, 5.0]])) / 2  # half of it is global
    for apart, grown, shrunk in [(1, 1.1052, 0.9048), (1.5, 1.1618, 0.8607), (4, 1.4918, 0.6703)]:
        uneven = diva_advantages(rewards, np.array([[5.0 + apart, 5.0 - apart]])) - even
        assert uneven / even == pytest.approx(np.array([[[grown, shrunk], [shrunk, grown]]]), abs=1e-4)


@given(arrays(np.float64, (2, 3, 4), elements=st.sampled_from([0.0, 0.25, 1.0])))
def test_of_two_completions_of_a_variant_the_better_has_the_larger_advantage(rewards):
    found = diva_advantages(rewards, np.full((2, 3), 5.0))
    for better, values in zip(rewards.reshape(6, 4), found.reshape(6, 4), strict=True):
        assert (np.sign(values[:, None] - values) == np.sign(better[:, None] - better)).all()


@pytest.fixture
def batches(monkeypatch):
    """The prepared generation batches, with the pass rates believed in and the total rewards, two problems each."""
    seen, prepare = [], GenerationBatch.make

    def preparing(self, rows, make):
        batch = prepare(self, rows, make)
        in_flight, outcomes = self._trainer.selection.feedback.rounds[-1]
        totals = outcomes.total.reshape(-1, 2, 4)
        seen.append((batch["advantages"].numpy(), in_flight.posterior_mean.reshape(-1, 2), totals))
        return batch

    monkeypatch.setattr(GenerationBatch, "make", preparing)
    return seen


def wanted(kind, totals, pass_rate):
    if kind == "diva":
        return diva_advantages(totals, posterior_difficulty(pass_rate)).ravel()
    local, whole = standardised(totals, 2), standardised(totals, (1, 2))
    return {"local": local, "global": whole, "local+global": local + whole}[kind].ravel()


@pytest.mark.parametrize("kind", ["local", "global", "local+global", "diva"])
def test_a_batch_is_trained_with_the_advantages_asked_for(varied, batches, kind):
    # Of two problems, which come again in each batch, other variants each time.
    trainer = varied(rows=variants_of_text_rows(of=lambda number: number < 2), vade_advantage=kind, max_steps=3)
    assert any(rate[0] != rate[1] for rate in batches[-1][1])
    for advantages, pass_rate, totals in batches:
        exact = 1e-3 if kind == "local" else 2e-5  # TRL's own are in float32
        assert advantages == pytest.approx(wanted(kind, totals, pass_rate), abs=exact)
    assert list(trainer._logs["advantages"]) == pytest.approx(batches[-1][0].tolist(), abs=1e-6)


class Halved(VADEGRPOTrainer):
    def _calculate_rewards(self, *arguments):
        return 0.5 * super()._calculate_rewards(*arguments)


@pytest.mark.parametrize("mode", ["none", "lossless"])
def test_rewards_that_a_subclass_changes_are_those_of_the_advantages(varied, batches, mode):
    varied(trainer_class=Halved, vade_advantage="diva", vade_down_sampling=mode, max_steps=2)
    for advantages, pass_rate, totals in batches:
        assert advantages == pytest.approx(wanted("diva", 0.5 * totals, pass_rate), abs=2e-5)


def test_completions_without_a_score_get_no_advantage(varied, batches):
    def some(completions, **columns):
        return [None if place % 4 == 1 else float(place % 4 == 0) for place in range(len(completions))]

    varied(some, vade_advantage="diva", max_steps=2)
    for advantages, _, _ in batches:
        assert (advantages[1::4] == 0).all()
        assert (advantages[::4] > 0).all()


def a_length(completions, **columns):
    return [0.1 * (len(text_of(completion)) % 3) for completion in completions]


@pytest.mark.parametrize(
    "settings",
    [
        {"vade_advantage": "diva", "reward_weights": [0.8, 1.0], "vade_success_reward": "says_a_digit"},
        slow({"vade_advantage": "global", "importance_sampling_level": "sequence"}),
        {"vade_advantage": "local+global", "num_iterations": 2, "loss_type": "grpo"},
        slow({"vade_advantage": "global", "mask_truncated_completions": True}),
        slow({"vade_advantage": "local"}),
    ],
    ids=str,
)
def test_leaving_out_rows_without_an_advantage_changes_no_weight(varied, settings):
    diva = settings["vade_advantage"] == "diva"
    exact = {"reward": [says_a_digit, a_length] if diva else says_a_digit, "learning_rate": 1.0, "optim": "sgd"}
    every, kept = (varied(vade_down_sampling=mode, max_steps=4, **exact | settings) for mode in ("none", "lossless"))
    assert diva or sum(logged(kept, "vade/kept_rollouts")) < sum(logged(every, "vade/kept_rollouts"))
    assert largest_difference(weights(every), weights(kept)) < 2e-5


# ------------------------------------------------------------------------------------------------ other settings


@pytest.mark.parametrize(
    "settings",
    [
        {"vade_sampler": OWN, "vade_variant_groups": 0},
        {"vade_down_sampling": "d3s", "vade_advantage": "diva"},
        {"vade_down_sampling": "rows", "vade_keep_rollouts": [0.5], "vade_advantage": "global", "beta": 0.1},
        {"vade_success_threshold": "spread", "vade_advantage": "global"},
        {"vade_stratify_by": "limit"},
    ],
    ids=str,
)
def test_other_methods_work_with_variants(varied, settings):
    trainer = varied(max_steps=3, **settings)
    assert len(logged(trainer, "vade/original_reward")) == 3 or settings.get("vade_variant_groups") == 0
    assert "vade_down_sampling" not in settings or max(logged(trainer, "vade/kept_rollouts")) < 16


class Game:
    def reset(self, **row):
        return None


SPREAD = {"vade_success_threshold": "spread"}
REFUSED = [  # settings and arguments, and what the message names
    ({"vade_variant_groups": 2}, "vade_variant_groups=2"),  # three groups, where a batch has four
    ({"vade_dynamic_sampling": True}, "vade_dynamic_sampling"),
    ({"vade_sampler": OWN}, f"vade_sampler={OWN!r}"),
    ({"vade_variant_groups": 0, "vade_advantage": "global"}, "vade_variant_groups=0"),
    ({"vade_advantage": "global", "scale_rewards": "batch"}, "scale_rewards='batch'"),
    ({"vade_advantage": "diva", "multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation"),
    ({"vade_advantage": "diva", **SPREAD}, "vade_advantage"),
    ({"vade_variant_match": "difficulty", **SPREAD}, "difficulty"),
    ({"vade_sampler": "uniform", "shuffle_dataset": False}, "shuffle_dataset=False"),
    ({"vade_sampler": "uniform", "rows": variants_of_text_rows().to_iterable_dataset()}, "IterableDataset"),
    ({"more": {"environment_factory": Game}}, "environment"),
    (
        {"rows": variants_of_text_rows(("text",)), "vade_variant_groups": 3, "per_device_train_batch_size": 32},
        "24 of 24",  # problems have too few variants
    ),
]


@pytest.mark.parametrize(("settings", "name"), REFUSED)
def test_what_cannot_have_variants_is_refused_by_name(vary, settings, name):
    with refused(ConfigurationError, [name]):
        vary(**settings)
