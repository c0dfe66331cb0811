"""The model card: TRL's text whole, and after it VADE's, from fixed facts and from a real trainer.

`python -m tests.hub.test_model_card` writes model_cards/model_example.md anew.
"""

import functools
import re
import shlex
from pathlib import Path

import pytest
import transformers
import yaml
from huggingface_hub import HfApi, ModelCard, ModelCardData
from huggingface_hub.cli.hf import app as hf
from packaging.version import Version
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer
from trl.trainer.utils import generate_model_card

from tests.support.own_samplers import OWN
from tests.support.refusals import refused
from tests.support.rows import make_text_rows, picture
from tests.support.runs import SMALL_RUN, says_a_digit, train
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.hub.model_card import START, complete_model_card
from trl_vade.selection.report.summary import measured_rows, summarise, verdict
from trl_vade.selection.report.writing import REPORT_FILE
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.report import live_run, write_model_card

EXAMPLE = Path(__file__).parents[2] / "model_cards" / "model_example.md"
INVENTED = "> This card is an example. Its names and figures are invented: no such run took place."
FACTS = {
    **{"package_version": "0.1.0"},
    **{"base_model": "Qwen/Qwen2.5-VL-3B-Instruct", "model_repo": "you/qwen2.5-vl-3b-vade"},
    **{"dataset": "you/vade-mixture", "dataset_revision": "0123456789abcdef0123456789abcdef01234567"},
    **{"dataset_fingerprint": "5b229260dcc8b9f9b72abb89dd8eae1b01b5ac2a19aba72a56f329ac24eaacb9"},
    **{"num_generations": 8, "temperature": 1.0, "rewards": ["accuracy_reward", "format_reward"], "seed": 42},
    **{"sampler": "thompson", "preset": "balanced", "information_gain": "asymmetric"},
    **{"prior": "prompts", "even_rest": True, "cooldown": 0.5, "stratify_by": "task"},
    **{"posterior_init": "prior", "warm_start_discount": None, "dynamic_sampling": False, "max_prompt_length": 8192},
    **{"success_reward": "accuracy_reward", "success_threshold": 0.5, "num_samples": 8524, "generation_batches": 240},
    **{"decay_sampled": 0.2, "decay_unsampled": 0.999, "signal_aware_decay": True},
    **{"hardware": "4 x NVIDIA H200"},
    "recipe": {
        **{"learning_rate": 1e-6, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_steps": 960},
        **{"per_device_train_batch_size": 4, "gradient_accumulation_steps": 64, "generation_batch_size": 4096},
        **{"num_iterations": 1, "beta": 0.01, "loss_type": "dapo", "epsilon": 0.2, "epsilon_high": None},
        **{"scale_rewards": "group", "max_completion_length": 2048, "use_vllm": True, "vllm_mode": "colocate"},
        **{"bf16": True, "num_processes": 4},
    },
}
SUMMARY = {
    **{"steps": 960, "generation_batches": 240, "refills": 0, "rollouts": 983040, "trained_completions": 480_000},
    **{"effective_gradient_ratio_first_quarter": 0.5, "effective_gradient_ratio_last_quarter": 0.4},
    **{"even_draw_ratio_last_quarter": 0.3, "groups_first_quarter": 7680, "groups_last_quarter": 7680},
    "seconds": {"selection": 36.0, "generation": 90_000.0, "update": 72_000.0, "validation": 3_600.0},
    "validation": [{"step": 480 * n, "score": x, "standard_error": 0.01} for n, x in enumerate((0.25, 0.4, 0.5))],
}
NOTHING_ELSE = {"settings": VADE_DEFAULTS, "curves": None, "posterior_repo": None, "hub_model_id": None}


@functools.cache
def trl_text(dataset_name, base_model):
    """The card that TRL writes, with no version of a package in it."""
    names = {"base_model": base_model, "model_name": "qwen2.5-vl-3b-vade", "dataset_name": dataset_name}
    names |= {"hub_model_id": "you/qwen2.5-vl-3b-vade", "tags": VADEGRPOTrainer._tag_names, "wandb_url": None}
    paper = {"trainer_citation": "citation", "paper_title": "title", "paper_id": "id"}
    names |= {name: VADEGRPOTrainer._paper[part] for name, part in paper.items()}
    card = generate_model_card(**names, trackio_url=None, trainer_name=VADEGRPOTrainer._name)
    card.text = re.sub(r"(?m)^(- \w+): \d.*$", r"\1: x.y.z", card.text)
    return str(card), card.text


def trl_card(path, dataset_name="you/vade-mixture", base_model="Qwen/Qwen2.5-VL-3B-Instruct"):
    """Write TRL's card; returns its text without the metadata."""
    whole, text = trl_text(dataset_name, base_model)
    path.write_text(whole, encoding="utf-8")
    return text


@pytest.fixture
def completed(tmp_path):
    """The whole text of a card after `complete_model_card`, which starts from TRL's."""

    def complete(facts=FACTS, **changes):
        path = tmp_path / "README.md"
        trl_card(path, **{name: changes.pop(name) for name in ("dataset_name", "base_model") if name in changes})
        complete_model_card(path, facts, **(NOTHING_ELSE | changes))
        return path.read_text(encoding="utf-8")

    return complete


def metadata(text):
    return yaml.safe_load(text.split("---\n")[1])


def section(text, heading):
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def blocks(text):
    return re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)


def example_card(path):
    trl_card(path)
    named = {"posterior_repo": "you/qwen2.5-vl-3b-vade-posterior", "hub_model_id": "you/qwen2.5-vl-3b-vade"}
    figures = {"summary": SUMMARY, "measured": measured_rows(SUMMARY), "verdict": verdict(SUMMARY)}
    complete_model_card(path, FACTS, **NOTHING_ELSE | {"curves": REPORT_FILE} | figures | named)
    return path.read_text(encoding="utf-8").replace("\n# ", f"\n{INVENTED}\n\n# ", 1)


def test_the_example_is_what_these_facts_give(tmp_path):
    written = EXAMPLE.read_text(encoding="utf-8")
    assert written == example_card(tmp_path / "README.md"), "python -m tests.hub.test_model_card"


def around_the_quick_start(text):
    before, _, rest = text.partition("## Quick start")
    return before, rest[rest.index("\n## ") :].rstrip()


def test_a_second_call_changes_nothing_and_trls_text_and_the_metadata_stay_whatever_the_names(tmp_path):
    path = tmp_path / "README.md"
    before, after = around_the_quick_start(trl_card(path))
    name = "`a|b`\n---\n\u202e: [x]"
    changes = {"rewards": [name], "success_reward": name, "stratify_by": name, "sampler": OWN, "dataset": None}
    written = []
    for _ in range(2):
        complete_model_card(path, FACTS | changes, **NOTHING_ELSE)
        written.append(path.read_text(encoding="utf-8"))
    assert written[0] == written[1]
    assert ModelCard(written[0]).text.startswith(before)
    assert f"{after}\n\n{START}" in written[0]
    assert ModelCardData(**metadata(written[0])).to_dict() == metadata(written[0])


RESULT = "What the training did"


@pytest.mark.parametrize("vision", [True, False])
def test_the_quick_start_runs(completed, vision, text_model_path, vision_model_path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    picture(7).resize((56, 56)).save("picture.png")
    facts = FACTS | {"recipe": FACTS["recipe"] | {"max_completion_length": 2}}
    model = vision_model_path if vision else text_model_path
    code, client = blocks(section(completed(facts, vision=vision, hub_model_id=model), "Quick start"))
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.endswith("\n")
    compile(client, "README.md", "exec")  # of the server's answer nothing can be known here


@pytest.mark.parametrize("vision", [True, False])
def test_on_a_branch_all_that_names_the_model_or_the_posterior_names_it(completed, vision):
    assert completed(hub_model_id="you/run", revision="main") == completed(hub_model_id="you/run")
    text = completed(posterior_repo="you/rates", hub_model_id="you/run", revision="seed-3", vision=vision)
    assert "`vllm serve you/run --revision seed-3`" in text
    assert "\nhf download you/run --revision seed-3 --local-dir run\n" in text
    assert text.count('from_pretrained("you/run", revision="seed-3"') == text.count("from_pretrained(") == 2
    assert 'completions.create(model="you/run", ' in text  # the name that vLLM serves it by
    assert 'load_posterior("you/rates@seed-3")' in text
    assert 'vade_posterior_init="you/rates@seed-3"' in text
    beside = completed(hub_model_id="you/run", revision="seed-3", vision=vision)
    assert "\nhf download you/run --revision seed-3 vade_posterior.safetensors --local-dir run\n" in beside


def run_lines(text, heading="Quick start"):
    """Run what a section says first: its `hf` commands, and the first code, whose names are returned."""
    lines = section(text, heading)
    for command in re.findall(r"```bash\nhf (.+?)\n```", lines):
        hf(shlex.split(command), standalone_mode=False)
    names = {}
    exec(compile(blocks(lines)[0], "README.md", "exec"), names)
    return names


@pytest.fixture
def branch(hub, text_model_path):
    """A function that puts a folder on the branch seed-3 of you/run, whose main branch is empty as TRL leaves it."""
    api = HfApi()
    for repo_id in ("you/run", "you/base"):
        api.create_repo(repo_id)
    api.upload_folder(repo_id="you/base", folder_path=text_model_path)
    api.create_branch("you/run", branch="seed-3")
    return lambda folder: api.upload_folder(repo_id="you/run", folder_path=folder, revision="seed-3")


def test_an_adapter_on_a_branch_is_downloaded_first(completed, branch, text_model_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = AutoModelForCausalLM.from_pretrained(text_model_path)
    model = get_peft_model(whole, LoraConfig(target_modules=["q_proj"]))
    model.peft_config["default"].base_model_name_or_path = "you/base"
    model.save_pretrained("saved")
    AutoTokenizer.from_pretrained(text_model_path).save_pretrained("saved")
    branch("saved")
    facts = FACTS | {"base_model": "you/base", "recipe": FACTS["recipe"] | {"max_completion_length": 2}}
    text = completed(facts, vision=False, adapter=True, hub_model_id="you/run", revision="seed-3")
    assert "`vllm serve you/base --enable-lora --lora-modules lora=adapter`" in text
    assert 'completions.create(model="lora", ' in text
    # Not `active_adapters()`: transformers 5.24 refuses it below PEFT 0.22, which is not released.
    assert any("lora_A.default" in name for name in run_lines(text)["model"].state_dict())
    old = Version(transformers.__version__) < Version("5.18")  # which looks for a configuration beside the adapter
    # When this fails, `from_pretrained` can do without the download.
    with refused(ValueError, ["you/run"]) if old else refused(OSError, ["you/base"]):
        AutoModelForCausalLM.from_pretrained("you/run", revision="seed-3")


@pytest.fixture(scope="module")
def trained(text_model_path, tmp_path_factory):
    """A trainer after two steps, which has written no card."""
    args = VADEGRPOConfig(**(SMALL_RUN | {"output_dir": str(tmp_path_factory.mktemp("run") / "out"), "max_steps": 2}))
    return train(text_model_path, make_text_rows(), args)


def card_of(trainer):
    return Path(trainer.args.output_dir, "README.md").read_text(encoding="utf-8")


def test_before_training_the_card_is_trls_and_what_is_known(text_model_path, text_rows, make_args):
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), text_rows)
    GRPOTrainer.create_model_card(trainer, model_name="out", dataset_name="you/rows")
    _, after = around_the_quick_start(ModelCard(card_of(trainer)).text)
    trainer.create_model_card(model_name="out", dataset_name="you/rows")
    text = card_of(trainer)
    assert after in text
    assert "fine-tuned version of a model in a local folder" in text
    assert metadata(text)["datasets"] == ["you/rows"]
    assert metadata(text)["pipeline_tag"] == "text-generation"
    assert "AutoModelForCausalLM" in text
    assert "adapter" not in text
    assert "| `vade_sampler` | thompson |" in text
    assert "No generation batch has been scored yet" in text
    assert REPORT_FILE not in text


def test_after_training_the_card_shows_what_was_measured_and_the_picture_of_the_report_if_there_is_one(trained):
    trained.create_model_card(model_name="out")
    text, picture = card_of(trained), Path(trained.args.output_dir, REPORT_FILE)
    summary = summarise(live_run(trained))
    assert f"| rollouts | {summary['rollouts']} |" in text
    assert f"last quarter | {100 * summary['effective_gradient_ratio_last_quarter']:.1f} % |" in text
    assert REPORT_FILE not in text
    picture.touch()
    trained.create_model_card(model_name="out")
    picture.unlink()
    assert f"]({REPORT_FILE})" in card_of(trained)


def test_a_card_that_cannot_be_completed_ends_no_run(trained, caplog):
    path = Path(trained.args.output_dir, "README.md")
    path.write_text("---\n- no mapping\n---\n# Mine\n")
    write_model_card(trained)
    assert path.read_text() == "---\n- no mapping\n---\n# Mine\n"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


if __name__ == "__main__":
    EXAMPLE.write_text(example_card(EXAMPLE), encoding="utf-8")
