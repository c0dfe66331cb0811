"""What the rewards of a real run say of its rows: success by a name, graded rewards, or their spread.

Resume of runs that are known by spreads or by learned bounds: `test_battery.py`.
"""

import numpy as np
import pytest

from tests.support.rows import numbered_rows, text_of
from tests.support.runs import logged, odd_length, says_a_digit
from trl_vade.selection.log import SelectionLog


def small_rewards(completions, **columns):
    """From 0.05 to 0.2, and different in most groups."""
    return [0.05 + 0.01 * (sum(map(ord, text_of(each))) % 16) for each in completions]


def accuracy_reward(completions, limit, **columns):
    return says_a_digit(completions, limit)


def lines_of(trainer):
    return SelectionLog(trainer.args.output_dir).read()


@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
def test_groups_with_graded_rewards_have_the_gradient_that_trl_sees(run, sampler, caplog):
    trainer = run(small_rewards, vade_sampler=sampler, max_steps=12)
    without = np.array(logged(trainer, "frac_reward_zero_std"))
    assert np.array(logged(trainer, "vade/effective_gradient_ratio")) == pytest.approx(1 - without)
    assert min(without) < 1
    assert trainer.selection.feedback.signal.is_spread
    assert caplog.text.count("more than two values") == 1


def test_rows_of_graded_rewards_are_chosen_by_how_often_they_differ(run):
    """Only the completions of some rows differ, and these are chosen; by a threshold of 0.5 all rows look alike.

    With the short rest of `frontier`: half of the rows differ, and the default lets each rest for half an epoch.
    """

    def graded(completions, id, **columns):
        values = small_rewards(completions)
        return [value if int(name[4:]) < 12 else 0.2 for value, name in zip(values, id, strict=True)]

    trainer = run(graded, max_steps=40, learning_rate=0.0, vade_preset="frontier")
    late = np.concatenate([line["sample_index"] for line in lines_of(trainer)[20:]])
    assert np.mean(late < 12) > 0.8
    assert {"vade/mean_spread"} == {"vade/mean_spread", "vade/mean_pass_rate"} & trainer.state.log_history[0].keys()


def test_a_name_that_says_accuracy_is_success_as_if_it_were_declared(run, caplog):
    rewards = [odd_length, accuracy_reward]
    trainer = run(rewards)
    assert trainer.selection.feedback.signal.facts["success_reward"] == "accuracy_reward"
    assert "accuracy_reward" in caplog.text
    assert lines_of(run(rewards, vade_success_reward="accuracy_reward")) == lines_of(trainer)


def test_rewards_of_which_no_name_says_success_are_known_by_the_spread_of_their_sum(run, caplog):
    trainer = run([odd_length, small_rewards])
    assert trainer.selection.feedback.signal.facts["success_reward"] is None
    assert "spread of their total rewards" in caplog.text
    assert trainer.selection.sampler.state_dict()["settings"]["gain"] == "spread"
    assert all(np.all(np.array(line["successes"]) <= line["trials"]) for line in lines_of(trainer))


@pytest.mark.slow
def test_with_one_reward_a_task_both_tasks_are_learned_and_the_metric_is_of_all_groups(run, caplog):
    """45 % of the rows of each task teach. Success alone would leave all rows of "grounding" alike."""
    rows = numbered_rows(128, task=lambda i: ("maths", "grounding")[i % 2], teaches=lambda i: i // 2 % 20 < 9)
    chance = np.random.default_rng(0)

    def of(name, kind, values):
        def reward(completions, task, teaches, **columns):
            return [
                float(chance.choice(values)) * teaching if here == kind else None
                for here, teaching in zip(task, teaches, strict=True)
            ]

        reward.__name__ = name
        return reward

    def tag_format(completions, **columns):
        return [1.0] * len(completions)

    rewards = [of("accuracy_reward", "maths", [0, 1]), of("iou_reward", "grounding", [0, 0, 0.2, 0.6]), tag_format]
    sizes = {"per_device_train_batch_size": 64, "num_generations": 8, "max_completion_length": 1}
    found = {}
    for sampler in ("uniform", "thompson"):
        trainer = run(rewards, rows, vade_sampler=sampler, learning_rate=0.0, max_steps=40, **sizes)
        teach = np.array(logged(trainer, "vade/effective_gradient_ratio"))
        assert teach == pytest.approx(1 - np.array(logged(trainer, "frac_reward_zero_std")))
        found[sampler] = teach[20:].mean()
    assert found["uniform"] < 0.55 < found["thompson"]
