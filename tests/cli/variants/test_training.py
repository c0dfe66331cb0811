"""What `trl-vade variants` builds is what `vade_variants` trains on."""

import pytest
from datasets import load_dataset

from tests.support.commands import run
from tests.support.runs import logged, train
from trl_vade.testbed.rewards import exact_answer_reward


@pytest.mark.parametrize("groups", [0, 1])
def test_the_trainer_takes_originals_and_variants_from_the_folder(tmp_path, vision_model_path, make_args, groups):
    kinds = "gaussian-1,rotation-2,drawn"
    built = run("variants", "testbed", "--limit", 8, "--output_dir", tmp_path / "variants", "--kinds", kinds)
    assert built.exit_code == 0, built.output
    rows = load_dataset(str(tmp_path / "variants"), split="train", cache_dir=str(tmp_path / "cache"))
    args = make_args(
        vade_variants="of",
        vade_variant_groups=groups,
        num_generations=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        max_completion_length=4,
        max_steps=2,
    )
    trainer = train(vision_model_path, rows, args, exact_answer_reward)
    shares = {kind: logged(trainer, f"vade/selected_share/{kind}")[-1] for kind in ("original", *kinds.split(","))}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert groups == 0 or shares["original"] == 0.5
