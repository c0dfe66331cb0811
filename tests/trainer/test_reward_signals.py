"""What the rewards of a real run say of its rows: success by a name, graded rewards, or their spread."""

import numpy as np
import pytest
from trl import GRPOTrainer

from tests.support.marks import slow
from tests.support.rows import numbered_rows, text_of
from tests.support.runs import SaveAt, StopAfter, always_half, assert_same_end, logged, says_a_digit, train
from trl_vade.selection.log import SelectionLog


def unique_letters(completions, **kwargs):
    """TRL's own first example: dense, and never 0 or 1."""
    return [float(len(set(text_of(completion))) + 5) for completion in completions]


def small_rewards(completions, **kwargs):
    """From 0.05 to 0.2, and different in most groups."""
    return [0.05 + 0.01 * (sum(map(ord, text_of(completion))) % 16) for completion in completions]


def accuracy_reward(completions, limit, **kwargs):
    return says_a_digit(completions, limit)


def think_format_reward(completions, **kwargs):
    return [float(len(text_of(completion)) % 2) for completion in completions]


def lines_of(trainer):
    return SelectionLog(trainer.args.output_dir).read()


@pytest.mark.parametrize("reward", [slow(small_rewards), unique_letters])
@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
def test_groups_with_graded_rewards_have_the_gradient_that_trl_sees(
    text_model_path, text_rows, make_args, sampler, reward, caplog
):
    trainer = train(text_model_path, text_rows, make_args(vade_sampler=sampler, max_steps=12), reward=reward)
    without = np.array(logged(trainer, "frac_reward_zero_std"))
    assert np.array(logged(trainer, "vade/effective_gradient_ratio")) == pytest.approx(1 - without)
    assert max(logged(trainer, "vade/effective_gradient_ratio")) > 0
    assert trainer.selection.feedback.signal.is_spread
    assert "of them are right" not in caplog.text
    assert caplog.text.count("more than two values") == 1


def test_rows_of_graded_rewards_are_chosen_by_how_often_they_differ(text_model_path, text_rows, make_args):
    """Only the completions of some rows differ, and these are chosen; by a threshold of 0.5 all rows look alike.

    With the short rest of `frontier`: half of the rows differ, and the default lets each rest for half an epoch.
    """

    def graded(completions, id, **kwargs):
        values = small_rewards(completions)
        return [value if int(name[4:]) < 12 else 0.2 for value, name in zip(values, id, strict=True)]

    trainer = train(
        text_model_path, text_rows, make_args(max_steps=40, learning_rate=0.0, vade_preset="frontier"), reward=graded
    )
    late = np.concatenate([line["sample_index"] for line in lines_of(trainer)[20:]])
    assert np.mean(late < 12) > 0.8
    assert "vade/mean_spread" in trainer.state.log_history[0]
    assert "vade/mean_pass_rate" not in trainer.state.log_history[0]


def test_two_changed_lines_are_enough_for_an_accuracy_and_a_format_reward(
    text_model_path, text_rows, make_args, caplog
):
    trainer = train(text_model_path, text_rows, make_args(), reward=[think_format_reward, accuracy_reward])
    assert trainer.selection.feedback.signal.facts["success_reward"] == "accuracy_reward"
    assert "accuracy_reward" in caplog.text
    declared = make_args(vade_success_reward="accuracy_reward", output_dir=trainer.args.output_dir + "-declared")
    again = train(text_model_path, text_rows, declared, reward=[think_format_reward, accuracy_reward])
    assert lines_of(again) == lines_of(trainer)


def test_rewards_of_which_no_name_says_success_are_known_by_the_spread_of_their_sum(
    text_model_path, text_rows, make_args, caplog
):
    trainer = train(text_model_path, text_rows, make_args(), reward=[think_format_reward, small_rewards])
    assert trainer.selection.feedback.signal.facts["success_reward"] is None
    assert "spread of their total rewards" in caplog.text
    assert trainer.selection.sampler.state_dict()["settings"]["gain"] == "spread"
    assert all(np.all(np.array(line["successes"]) <= line["trials"]) for line in lines_of(trainer))


@pytest.mark.parametrize("rewards", [slow([unique_letters]), [think_format_reward, small_rewards]], ids=["one", "two"])
def test_a_run_that_is_known_by_spreads_resumes_bit_for_bit(text_model_path, text_rows, make_args, tmp_path, rewards):
    def start(folder, callbacks=None):
        args = make_args(output_dir=str(tmp_path / folder))
        return train(text_model_path, text_rows, args, reward=rewards, callbacks=callbacks)

    whole = start("whole")
    stopped = start("parts", [SaveAt(3), StopAfter(4)])
    resumed = type(stopped)(text_model_path, rewards, make_args(output_dir=stopped.args.output_dir), text_rows)
    resumed.train(resume_from_checkpoint=f"{stopped.args.output_dir}/checkpoint-3")
    assert_same_end(resumed, whole)
    assert resumed.selection.feedback.signal.facts == whole.selection.feedback.signal.facts


def test_learned_bounds_of_fractions_resume_bit_for_bit(text_model_path, text_rows, make_args, tmp_path):
    def trainer(folder, callbacks=None):
        from trl_vade import VADEGRPOTrainer

        args = make_args(output_dir=str(tmp_path / folder), vade_success_threshold=None)
        return VADEGRPOTrainer(text_model_path, unique_letters, args, text_rows, callbacks=callbacks)

    whole = trainer("whole")
    whole.train()
    stopped = trainer("parts", [SaveAt(3), StopAfter(4)])
    stopped.train()
    resumed = trainer("parts")
    resumed.train(resume_from_checkpoint=f"{stopped.args.output_dir}/checkpoint-3")
    assert_same_end(resumed, whole)
    assert whole.selection.feedback.signal.bounds[0] >= 5


def test_uniform_with_several_rewards_keeps_a_posterior_and_trains_as_stock(text_model_path, text_rows, make_args):
    rewards = [says_a_digit, always_half]
    ours = train(text_model_path, text_rows, make_args(vade_sampler="uniform", max_steps=2), reward=rewards)
    stock = train(text_model_path, text_rows, make_args(max_steps=2), reward=rewards, trainer_class=GRPOTrainer)
    assert logged(ours, "loss") == logged(stock, "loss")
    assert ours.selection.sampler.posterior.step == 2


def test_with_one_reward_a_task_both_tasks_are_learned_and_the_metric_is_of_all_groups(
    text_model_path, make_args, caplog
):
    """45 % of the rows of each task teach. Success alone would leave all rows of "grounding" alike."""
    rows = numbered_rows(128, task=lambda i: ("maths", "grounding")[i % 2], teaches=lambda i: i // 2 % 20 < 9)
    chance = np.random.default_rng(0)

    def of(task_name, values):
        def reward(completions, task, teaches, **kwargs):
            drawn = [float(chance.choice(values)) for _ in completions]
            return [
                each * on if kind == task_name else None for each, on, kind in zip(drawn, teaches, task, strict=True)
            ]

        return reward

    accuracy_reward, iou_reward = of("maths", [0, 1]), of("grounding", [0, 0, 0.2, 0.6])
    accuracy_reward.__name__, iou_reward.__name__ = "accuracy_reward", "iou_reward"

    def tag_format(completions, **kwargs):
        return [1.0] * len(completions)

    found = {}
    for sampler in ("uniform", "thompson"):
        args = make_args(
            vade_sampler=sampler,
            output_dir=make_args().output_dir + sampler,
            learning_rate=0.0,
            max_steps=40,
            per_device_train_batch_size=64,
            num_generations=8,
            max_completion_length=1,
        )
        trainer = train(text_model_path, rows, args, reward=[accuracy_reward, iou_reward, tag_format])
        teach = np.array(logged(trainer, "vade/effective_gradient_ratio"))
        assert teach == pytest.approx(1 - np.array(logged(trainer, "frac_reward_zero_std")))
        found[sampler] = teach[20:].mean()
    assert found["uniform"] < 0.55 < found["thompson"]
    assert "1 of the 3 reward functions" in caplog.text
