"""A checkpoint's weights under the names that the model has for them."""

from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights
from trl_vade.errors import VADEError
from trl_vade.testbed.model import build_model
from trl_vade.testbed.processor import build_processor
from trl_vade.trainer.checkpoint.resuming import load_saved_weights


def fresh_model():
    return build_model(build_processor(), seed=1)


def test_a_qwen_takes_over_what_was_saved_under_its_old_names(vision_model_path):
    assert any(name.startswith("visual.") for name in load_file(f"{vision_model_path}/model.safetensors"))
    model = fresh_model()
    load_saved_weights(model, vision_model_path)
    expected = AutoModelForImageTextToText.from_pretrained(vision_model_path).state_dict()
    assert_equal_weights(model.state_dict(), expected)


def test_a_checkpoint_that_lacks_a_weight_is_refused_by_name_and_changes_nothing(vision_model_path, tmp_path):
    model = AutoModelForImageTextToText.from_pretrained(vision_model_path)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    del saved["visual.merger.ln_q.weight"]
    save_file(saved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    target = fresh_model()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with refused(VADEError, names=["model.visual.merger.ln_q.weight"]):
        load_saved_weights(target, tmp_path)
    assert_equal_weights(target.state_dict(), before)
