"""`VADEGRPOTrainer` with variants of its questions: problems side by side, own posteriors, advantages, refusals."""

import numpy as np
import pytest
from PIL import ImageOps

from tests.support.marks import slow, slow_but
from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from tests.support.rows import make_text_rows, text_of, with_variants
from tests.support.runs import (
    SaveAt,
    StopAfter,
    assert_same_end,
    logged,
    rows_with_images,
    says_a_digit,
    train,
    weights,
)
from trl_vade import ConfigurationError, VADEGRPOTrainer, VADEReportCallback
from trl_vade.selection.advantages import diva_advantages, posterior_difficulty, standardised
from trl_vade.trainer.batch import GenerationBatch

KINDS = ("hint-1", "hint-2", "text")


def rows_with_variants(kinds=KINDS, of=lambda number: True):
    """The text rows, each with a variant of each kind; the prompts differ in their words."""
    words = {"hint-1": "a digit", "hint-2": "a digit above", "text": "say"}
    originals = make_text_rows()
    variants = [
        [
            {"kind": kind, "prompt": [{"role": "user", "content": f"{row['prompt'][0]['content']} {words[kind]}"}]}
            for kind in kinds
        ]
        if of(number)
        else []
        for number, row in enumerate(originals)
    ]
    return with_variants(originals, variants)


def of_kind(right):
    """A reward that looks at the kind: the k-th completion of a group is right if k is below the kind's number."""

    def reward(completions, kind, **columns):
        return [float(place % 4 < right[each]) for place, each in enumerate(kind)]

    return reward


def noting(seen, reward=says_a_digit):
    def noted(completions, **columns):
        seen.append({name: columns[name] for name in ("of", "kind", "id")})
        return reward(completions, **columns)

    return noted


@pytest.fixture
def made(text_model_path, make_args):
    """A function that makes a trainer of rows with variants."""

    def make(
        reward=says_a_digit, rows=None, *, trainer_class=VADEGRPOTrainer, model=text_model_path, more=None, **settings
    ):
        args, rows = make_args(vade_variants="of", **settings), rows_with_variants() if rows is None else rows
        trainer = trainer_class(model, reward, args, rows, **(more or {}))
        trainer.remove_callback(VADEReportCallback)
        return trainer

    return make


@pytest.fixture
def run(made):
    """A function that trains as `made` makes it."""

    def train(*arguments, **settings):
        trainer = made(*arguments, **settings)
        trainer.train()
        return trainer

    return train


@pytest.fixture
def batches(monkeypatch):
    """The prepared generation batches, with the pass rates believed in and the total rewards, two problems each."""
    seen, prepare = [], GenerationBatch.make

    def preparing(self, rows, make):
        batch = prepare(self, rows, make)
        in_flight, outcomes = self._trainer.selection.feedback.rounds[-1]
        seen.append(
            (batch["advantages"].numpy(), in_flight.posterior_mean.reshape(-1, 2), outcomes.total.reshape(-1, 2, 4))
        )
        return batch

    monkeypatch.setattr(GenerationBatch, "make", preparing)
    return seen


@pytest.mark.parametrize("sampler", slow_but(["thompson"], ["thompson", "greedy", "uniform"]))
@pytest.mark.parametrize("match", ["posterior", "difficulty"])
def test_each_original_is_followed_by_groups_of_its_own_variants(run, sampler, match):
    seen = []
    trainer = run(noting(seen), vade_sampler=sampler, vade_variant_match=match, max_steps=3)
    assert len(seen) == 3
    for batch in seen:
        groups = [{column: {*batch[column][start : start + 4]} for column in batch} for start in range(0, 16, 4)]
        assert all(len(values) == 1 for group in groups for values in group.values())
        assert [group["kind"] == {"original"} for group in groups] == [True, False] * 2
        assert groups[0]["of"] == groups[1]["of"] != groups[2]["of"] == groups[3]["of"]
    assert logged(trainer, "vade/selected_share/original") == [0.5] * 3


def test_two_variants_of_a_problem_are_of_two_kinds(run):
    seen = []
    run(noting(seen), per_device_train_batch_size=12, vade_variant_groups=2, max_steps=3)
    for batch in seen:
        assert batch["kind"][0] == "original"
        assert len({*batch["kind"]}) == 3
        assert len({*batch["of"]}) == 1


def test_an_original_that_is_never_solved_keeps_its_own_counts_beside_a_variant_that_is(run):
    trainer = run(of_kind({"original": 0, "hint-1": 2, "hint-2": 4, "text": 0}), vade_variant_groups=3)
    rows, posterior = trainer.train_dataset, trainer.selection.sampler.posterior
    kinds = np.array(rows["kind"])[posterior.visited]
    alpha, beta = posterior.alpha[posterior.visited], posterior.beta[posterior.visited]
    assert (alpha[kinds == "original"] == 0).all()
    assert (beta[kinds == "original"] > 0).all()
    assert (beta[kinds == "hint-2"] == 0).all()
    wanted = {"vade/original_reward": 0.0, "reward": 6 / 16, "vade/dead_problems": 0.0}
    wanted |= {"vade/effective_gradient_ratio/hint-1": 1.0, "vade/effective_gradient_ratio/original": 0.0}
    for name, value in wanted.items():
        assert logged(trainer, name) == [value] * 6


def test_without_groups_each_row_is_chosen_by_itself(run):
    seen, refills = [], {"vade_dynamic_sampling": True, "vade_max_refills": 1}
    trainer = run(noting(seen), vade_variant_groups=0, vade_stratify_by="kind", max_steps=4, **refills)
    assert any(kind != "original" for batch in seen for kind in batch["kind"][4:8])
    assert logged(trainer, "vade/original_reward")
    assert not logged(trainer, "vade/dead_problems")


def wanted(kind, totals, pass_rate):
    if kind == "diva":
        return diva_advantages(totals, posterior_difficulty(pass_rate)).ravel()
    local, whole = standardised(totals, 2), standardised(totals, (1, 2))
    return {"local": local, "global": whole, "local+global": local + whole}[kind].ravel()


@pytest.mark.parametrize("kind", ["local", "global", "local+global", "diva"])
def test_a_batch_is_trained_with_the_advantages_asked_for(run, batches, kind):
    trainer = run(vade_advantage=kind, max_steps=3)
    for advantages, pass_rate, totals in batches:
        exact = 1e-3 if kind == "local" else 2e-5  # TRL's own are in float32
        assert advantages == pytest.approx(wanted(kind, totals, pass_rate), abs=exact)
    assert list(trainer._logs["advantages"]) == pytest.approx(batches[-1][0].tolist(), abs=1e-6)


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
def test_leaving_out_rows_without_an_advantage_changes_no_weight(run, make_args, settings):
    ends, kept = [], []
    for mode in ("none", "lossless"):
        exact = {"learning_rate": 1.0, "optim": "sgd", "max_steps": 4, "vade_down_sampling": mode}
        reward = [says_a_digit, a_length] if settings["vade_advantage"] == "diva" else says_a_digit
        trainer = run(reward, output_dir=f"{make_args().output_dir}-{mode}", **exact | settings)
        ends.append(weights(trainer))
        kept.append(sum(logged(trainer, "vade/kept_rollouts")))
    assert kept[1] < kept[0] or settings["vade_advantage"] == "diva"
    assert max(float((ends[0][name] - ends[1][name]).abs().max()) for name in ends[0]) < 2e-5


class Halved(VADEGRPOTrainer):
    def _calculate_rewards(self, *arguments):
        return 0.5 * super()._calculate_rewards(*arguments)


@pytest.mark.parametrize("mode", ["none", "lossless"])
def test_rewards_that_a_subclass_changes_are_those_of_the_advantages(run, batches, mode):
    run(trainer_class=Halved, vade_advantage="diva", vade_down_sampling=mode, max_steps=2)
    for advantages, pass_rate, totals in batches:
        assert advantages == pytest.approx(wanted("diva", 0.5 * totals, pass_rate), abs=2e-5)


def test_a_reward_above_the_largest_is_refused(run):
    reward = of_kind(dict.fromkeys(("original", *KINDS), 2))
    with refused(ConfigurationError, ["2", "vade_advantage='diva'"], ["reward_weights"]):
        run(reward, vade_advantage="diva", reward_weights=[2.0])


def test_completions_without_a_score_get_no_advantage(run, batches):
    def some(completions, **columns):
        return [None if place % 4 == 1 else float(place % 4 == 0) for place in range(len(completions))]

    run(some, vade_advantage="diva", max_steps=2)
    for advantages, _, _ in batches:
        assert (advantages[1::4] == 0).all()
        assert (advantages[::4] > 0).all()


@pytest.mark.parametrize(
    "settings",
    [{"vade_advantage": "diva"}, slow({"vade_variant_match": "difficulty"}), slow({"vade_sampler": "uniform"})],
    ids=str,
)
def test_a_resumed_run_goes_on_bit_for_bit(made, run, make_args, settings):
    settings |= {"max_steps": 4}
    cut = settings | {"output_dir": f"{make_args().output_dir}-cut"}
    run(more={"callbacks": [SaveAt(2), StopAfter(2)]}, **cut)
    resumed = made(**cut)
    resumed.train(resume_from_checkpoint=f"{cut['output_dir']}/checkpoint-2")
    assert_same_end(resumed, run(**settings))


def test_initial_rollouts_cover_every_variant_and_are_not_paired(run):
    trainer = run(vade_posterior_init="rollout", vade_advantage="diva", max_steps=1)
    assert len(trainer.selection.sampler.posterior.visited) == 24 * 4


def test_images_are_those_of_the_variant(run, vision_model_path):
    rows = rows_with_images(8)
    negatives = [[{"kind": "negative", "images": [ImageOps.invert(each) for each in row["images"]]}] for row in rows]
    known = {image.tobytes() for ((variant,),) in zip(negatives, strict=True) for image in variant["images"]}
    rows = with_variants(rows, negatives)
    seen = []

    def noted(completions, images, kind, **columns):
        seen.extend((each, image.convert("RGB")) for each, (image, *_) in zip(kind, images, strict=True))
        return [float(place % 2) for place in range(len(completions))]

    run(noted, rows, model=vision_model_path, vade_advantage="diva", max_steps=1)
    assert {kind for kind, _ in seen} == {"original", "negative"}
    for kind, image in seen:
        assert (kind == "negative") == (image.tobytes() in known)


def test_evaluation_sees_no_variants(made, caplog):
    seen, rows = [], rows_with_variants()
    trainer = made(noting(seen), rows, more={"eval_dataset": rows}, per_device_eval_batch_size=4)
    assert "72 of 96 rows" in caplog.text
    trainer.evaluate()
    assert {kind for batch in seen for kind in batch["kind"]} == {"original"}


def test_problems_with_too_few_variants_are_told_and_never_chosen(made, run, caplog):
    seen = []
    run(noting(seen), rows_with_variants(of=lambda number: number % 2), max_steps=3)
    assert "12 of 24 problems" in caplog.text
    assert all(int(of.removeprefix("row-")) % 2 for batch in seen for of in batch["of"])
    more = {"vade_variant_groups": 3, "per_device_train_batch_size": 32}
    with refused(ConfigurationError, ["2 problems", "vade_variant_groups=3", "24 of 24"], ["Add variants"]):
        made(rows=rows_with_variants(("text",)), model="no/model", **more)


def test_an_overlong_original_takes_its_variants_along(made):
    def longer(row):
        return {"prompt": [{"role": "user", "content": "say a digit " * 99}]} if row["id"] == "row-3" else {}

    rows = made(rows=rows_with_variants().map(longer), vade_max_prompt_length=100).train_dataset
    assert "row-3" not in rows["of"]
    assert len(rows) == 23 * 4


@pytest.mark.parametrize(
    ("settings", "names", "offers"),
    [
        ({"vade_variant_groups": 2}, ["vade_variant_groups=2", "3 groups", "has 4"], ["multiple of 12"]),
        ({"vade_dynamic_sampling": True}, ["vade_dynamic_sampling"], ["vade_variant_groups=0"]),
        ({"vade_sampler": OWN}, [f"vade_sampler={OWN!r}"], ["vade_variant_groups=0", "thompson"]),
        ({"vade_variant_groups": 0, "vade_advantage": "global"}, ["vade_variant_groups=0"], ["vade_variant_groups=1"]),
        ({"vade_advantage": "global", "scale_rewards": "batch"}, ["scale_rewards='batch'"], ["'group'", "local"]),
        (
            {"vade_advantage": "diva", "multi_objective_aggregation": "normalize_then_sum"},
            ["multi_objective_aggregation"],
            ["sum_then_normalize", "local"],
        ),
    ],
    ids=str,
)
def test_settings_that_cannot_go_together_are_refused(make_args, settings, names, offers):
    with refused(ConfigurationError, names, offers):
        make_args(**{"vade_variants": "of"} | settings)


class Game:
    def reset(self, **row):
        return None


@pytest.mark.parametrize(
    ("settings", "more", "names", "offers"),  # None: the rows are a stream
    [
        ({}, {"environment_factory": Game}, ["environment"], ["vade_variants=None"]),
        ({"vade_sampler": "uniform"}, None, ["IterableDataset"], ["datasets.Dataset"]),
        ({"vade_sampler": "uniform", "shuffle_dataset": False}, {}, ["shuffle_dataset=False"], ["vade_variants=None"]),
        ({"vade_success_threshold": "spread", "vade_advantage": "diva"}, {}, ["vade_advantage"], ["'auto'"]),
        ({"vade_success_threshold": "spread", "vade_variant_match": "difficulty"}, {}, ["difficulty"], ["'auto'"]),
    ],
    ids=str,
)
def test_rows_and_rewards_that_cannot_have_variants_are_refused(made, settings, more, names, offers):
    rows = rows_with_variants() if more is not None else rows_with_variants().to_iterable_dataset()
    with refused(ConfigurationError, names, offers):
        made(rows=rows, more=more, **settings)


def test_a_run_goes_on_from_a_posterior_of_the_originals(made, text_model_path, text_rows, make_args):
    plain = train(text_model_path, text_rows, make_args(max_steps=2, save_strategy="steps", save_steps=2))
    source = plain.args.output_dir
    warm = {"vade_posterior_init": source, "vade_warm_start_discount": 1.0, "output_dir": f"{source}-variants"}
    trainer = made(max_steps=1, **warm)
    trainer.train()
    first = trainer.selection.feedback.log.read()[0]
    ids = {trainer.train_dataset[row]["id"] for row in first["sample_index"]}
    assert ids == {text_rows[row]["id"] for row in plain.selection.sampler.posterior.visited.tolist()}


def test_rows_that_are_replaced_are_looked_over_again(run):
    trainer = run(max_steps=2)
    counted = len(trainer.selection.sampler.posterior.visited)
    trainer.train_dataset = rows_with_variants().select(range(1, 96))  # without an original
    trainer.train()
    assert len(trainer.train_dataset) == 23 * 4
    assert len(trainer.selection.sampler.posterior.visited) >= counted


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
def test_other_methods_work_with_variants(run, settings):
    trainer = run(max_steps=3, **settings)
    assert len(logged(trainer, "vade/original_reward")) == 3 or settings.get("vade_variant_groups") == 0
    if "vade_down_sampling" in settings:
        assert max(logged(trainer, "vade/kept_rollouts")) < 16
