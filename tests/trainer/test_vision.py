"""`VADEGRPOTrainer` on a real, randomly initialised Qwen2.5-VL: images, rows without one, and vision tokens."""

from functools import partial

import datasets
import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.support import runs
from tests.support.marks import slow
from tests.support.rows import text_of
from tests.support.vision_runs import picture
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.generation.corrections import vision_token_ids


def vision_rows(images, column="images"):
    """One row for each entry of `images`."""
    rows = [{"prompt": [{"role": "user", "content": f"What is {i}?"}], column: each} for i, each in enumerate(images)]
    feature = datasets.Image() if column == "image" else datasets.List(datasets.Image())
    return Dataset.from_list(rows).cast_column(column, feature)


def mixed(every, column="images", nothing=()):
    """Images in each `every`-th row; the other rows have what a data set holds there: None, or an empty list."""
    nothing = None if nothing is None or column == "image" else []
    one = picture if column == "image" else lambda i: [picture(i)]
    return vision_rows([one(i) if every and i % every == 0 else nothing for i in range(12)], column)


def is_short(completions, **kwargs):
    return [float(len(text_of(completion)) % 2) for completion in completions]


train = partial(runs.train, reward=is_short)


def test_each_chosen_row_is_decoded_once(vision_model_path, make_args, monkeypatch):
    decoded = []
    original = datasets.Image.decode_example
    monkeypatch.setattr(
        datasets.Image, "decode_example", lambda *args, **kwargs: decoded.append(1) or original(*args, **kwargs)
    )
    rows = mixed(1)
    decoded.clear()
    trainer = train(vision_model_path, rows, make_args(max_steps=2))
    assert trainer.selection.sampler.posterior.step == 2
    assert len(decoded) == 2 * 4


@pytest.mark.parametrize(
    ("column", "every", "sampler"),  # an `every` of 0: none has an image
    [
        ("images", 2, "thompson"),
        ("image", 2, "uniform"),
        ("image", 0, "thompson"),
        ("images", 0, "uniform"),
        slow("image", 2, "thompson"),
        slow("images", 2, "uniform"),
        slow("images", 0, "thompson"),
        slow("image", 0, "uniform"),
    ],
)
def test_rows_without_an_image_train_beside_rows_with_one(vision_model_path, make_args, column, every, sampler):
    trainer = train(vision_model_path, mixed(every, column), make_args(max_steps=3, vade_sampler=sampler))
    assert trainer.selection.sampler.posterior.step == 3


def test_rows_whose_images_are_missing_rather_than_empty_train_too(vision_model_path, make_args):
    rows = mixed(2, nothing=None)
    assert rows[1]["images"] is None
    assert train(vision_model_path, rows, make_args(max_steps=3)).selection.sampler.posterior.step == 3


def test_stock_trl_still_refuses_a_batch_of_rows_with_and_without_images(vision_model_path, make_args):
    """When this fails, `VADEGRPOTrainer._generate` and `generation.without_missing_images` can go."""
    with pytest.raises(TypeError, match="NoneType"):
        train(vision_model_path, mixed(2), make_args(GRPOConfig), trainer_class=GRPOTrainer)


def test_a_micro_batch_may_be_without_images_where_others_have_some(vision_model_path, make_args):
    """When the part without the hook fails, `corrections.without_empty_images` can go."""
    args = make_args(max_steps=1, per_device_train_batch_size=1, gradient_accumulation_steps=16)
    assert train(vision_model_path, mixed(2), args).state.global_step == 1
    args.output_dir += "-stock"
    trainer = VADEGRPOTrainer(vision_model_path, is_short, args, mixed(2))
    trainer.model._forward_pre_hooks.clear()
    with pytest.raises((ValueError, RuntimeError), match="non-empty list of Tensors"):  # torch 2.7: the latter
        trainer.train()


def test_where_the_tower_alone_is_trained_a_micro_batch_without_images_has_the_loss_0(vision_model_path, make_args):
    class TowerAlone(VADEGRPOTrainer):
        def create_optimizer(self, *given):
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad = "visual" in name
            return super().create_optimizer(*given)

    args = make_args(max_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=4)
    before = VADEGRPOTrainer(vision_model_path, is_short, args, mixed(4)).model.state_dict()
    trainer = train(vision_model_path, mixed(4), args, trainer_class=TowerAlone)
    changed = {name for name, value in trainer.model.state_dict().items() if not value.equal(before[name])}
    assert changed
    assert all("visual" in name for name in changed)


def sampled(trainer, monkeypatch, then=lambda: None):
    """Let the policy prefer the placeholders to all other tokens. Return them, and what it samples.

    `then` is called after each generation.
    """
    ids, seen, generate = vision_token_ids(trainer.model.config), set(), trainer._generate_single_turn

    def prefer(module, arguments, logits):
        logits[..., ids] += 100.0
        return logits

    def spying(*args, **kwargs):
        completion_ids, logprobs = generate(*args, **kwargs)
        seen.update(token for each in completion_ids for token in each)
        then()
        return completion_ids, logprobs

    trainer.model.lm_head.register_forward_hook(prefer)
    monkeypatch.setattr(trainer, "_generate_single_turn", spying)
    return ids, seen


def test_a_policy_that_wants_vision_tokens_never_gets_one(vision_model_path, make_args, monkeypatch):
    args = make_args(max_steps=2, generation_kwargs={"suppress_tokens": [5]})
    trainer = VADEGRPOTrainer(vision_model_path, is_short, args, mixed(1))
    ids, seen = sampled(trainer, monkeypatch)
    trainer.train()
    assert len(ids) == 2
    assert seen
    assert not seen & {5, *ids}


def test_stock_trl_still_lets_the_policy_sample_the_video_token(vision_model_path, make_args, monkeypatch):
    """When this fails, TRL suppresses it too, and `suppress_vision_tokens` can go for the transformers engine."""

    def end():
        raise InterruptedError  # the training forward would die: that is the fault

    trainer = GRPOTrainer(vision_model_path, is_short, make_args(GRPOConfig, max_steps=1), mixed(1))
    _, seen = sampled(trainer, monkeypatch, end)
    with pytest.raises(InterruptedError):
        trainer.train()
    assert trainer.model.config.video_token_id in seen
