"""The example scripts, as they stand, on tiny models and data."""

import json
import runpy
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from datasets import Dataset, Features, List, Value, load_dataset
from datasets import Image as HubImage
from PIL import Image
from trl import GRPOTrainer

from tests.support.families import write_family
from tests.support.runs import train
from trl_vade import VADEGRPOTrainer, load_posterior
from trl_vade.rewards import accuracy_reward
from trl_vade.selection.log import SelectionLog

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTIONS = [f"say a digit {'not' if number % 2 else 'above'} {number}" for number in range(160)]
PROMPTS = [[{"role": "user", "content": question}] for question in QUESTIONS]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run an example, or a changed copy of it, as `python examples/NAME` does; returns what it names."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")

    def run_example(name, *arguments, changes=None, max_steps=2):
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        for shown, other in (changes or {}).items():
            assert shown in text
            text = text.replace(shown, other)
        script = tmp_path / name
        script.write_text(text, encoding="utf-8")
        output = ["--output_dir", str(tmp_path / "out"), "--max_steps", str(max_steps)]
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments), *output])
        return runpy.run_path(str(script), run_name="__main__")

    return run_example


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def batches_of(trainer):
    return SelectionLog(trainer.args.output_dir).read()


def assert_learned(trainer, rows, batches=2):
    """Each batch chose `rows` rows, and the posterior that was saved knows all those that were chosen."""
    lines = batches_of(trainer)
    assert [len(line["sample_index"]) for line in lines] == [rows] * batches
    chosen = {row for line in lines for row in line["sample_index"]}
    assert sorted(load_posterior(trainer.args.output_dir).index) == sorted(chosen)
    left = {file.name for file in Path(trainer.args.output_dir).iterdir()}
    assert {"vade_posterior.safetensors", "vade_report.png"} <= left


@pytest.fixture
def deepmath(tmp_path):
    """A folder with the columns of trl-lib/DeepMath-103K."""
    rows = [{"prompt": prompt, "solution": f"${number % 10}$"} for number, prompt in enumerate(PROMPTS)]
    write_lines(tmp_path / "deepmath" / "train.jsonl", rows)
    return tmp_path / "deepmath"


@pytest.mark.slow
def test_two_lines_trains_on_many_rows_a_batch(run, text_model_path, deepmath):
    names = run("two_lines.py", "--model", text_model_path, "--dataset", deepmath, "--split", "train")
    assert isinstance(names["trainer"], VADEGRPOTrainer)
    assert_learned(names["trainer"], rows=64)


def test_the_diff_of_two_lines_leads_back_to_a_script_of_trl(run, text_model_path, deepmath):
    """What its docstring shows as removed is put in the place of what it shows as added."""
    shown = [line.strip() for line in (EXAMPLES / "two_lines.py").read_text(encoding="utf-8").splitlines()]
    removed = [line[1:] for line in shown if line.startswith("-from")]
    added = [line[1:] for line in shown if line.startswith("+from")]
    assert (len(removed), len(added)) == (1, 2)
    arguments = ["--model", text_model_path, "--dataset", deepmath, "--split", "train"]
    changes = {"\n" + "\n".join(added) + "\n": "\n" + removed[0] + "\n"}
    trainer = run("two_lines.py", *arguments, changes=changes, max_steps=1)["trainer"]
    assert type(trainer) is GRPOTrainer
    assert trainer.state.global_step == 1


@pytest.fixture
def gsm8k(tmp_path):
    """A folder like the repository openai/gsm8k: its configuration `main`, its splits and its columns."""
    rows = [{"question": each, "answer": f"{n} and 1 is\n#### {n % 10}"} for n, each in enumerate(QUESTIONS)]
    folder = tmp_path / "gsm8k"
    write_lines(folder / "main" / "train.jsonl", rows)
    write_lines(folder / "main" / "test.jsonl", rows[:20])
    files = [{"split": split, "path": f"main/{split}.jsonl"} for split in ("train", "test")]
    card = json.dumps({"configs": [{"config_name": "main", "data_files": files}]})
    (folder / "README.md").write_text(f"---\n{card}\n---\n", encoding="utf-8")
    return folder


@pytest.mark.slow
def test_text_math_trains_and_validates_on_the_number_behind_the_marks(run, text_model_path, gsm8k):
    trainer = run("text_math.py", "--model", text_model_path, "--dataset", gsm8k, max_steps=1)["trainer"]
    assert_learned(trainer, rows=128, batches=1)
    assert set(trainer.train_dataset["answer"]) == {str(digit) for digit in range(10)}
    assert [entry["step"] for entry in trainer.state.log_history if "eval_reward" in entry] == [0, 1]
    assert load_posterior(trainer.args.output_dir).metadata["success_reward"] == "accuracy_reward"


@pytest.mark.slow
def test_text_math_has_vanilla_grpo_as_its_baseline(run, text_model_path, gsm8k):
    arguments = ["--model", text_model_path, "--dataset", gsm8k, "--sampler", "uniform"]
    trainer = run("text_math.py", *arguments, max_steps=1)["trainer"]
    assert trainer.selection.sampler.kind == "uniform"


@pytest.fixture
def receipts(tmp_path):
    """A folder of small images with questions; the labels of the last four cannot be read."""
    folder = tmp_path / "receipts"
    rows = []
    for number in range(84):
        label = f"{number}.50" if number < 80 else "torn off"
        rows.append({"image": f"{number // 2:04d}.png", "question": f"What is value {number}?", "answer": label})
    write_lines(folder / "rows.jsonl", rows)
    for name in {row["image"] for row in rows}:
        Image.new("RGB", (56, 56), (int(name[:4]), 0, 0)).save(folder / name)
    return folder


@pytest.mark.slow
def test_own_images_counts_no_trial_where_its_reward_gives_no_verdict(run, vision_model_path, receipts):
    names = run("own_images.py", "--model", vision_model_path, "--dataset", receipts, max_steps=1)
    trainer = names["trainer"]
    assert len(trainer.train_dataset) == 80
    assert trainer.train_dataset[3]["images"][0].getpixel((0, 0)) == (1, 0, 0)
    assert_learned(trainer, rows=64, batches=1)
    (line,) = batches_of(trainer)
    rewards = list(trainer._logs["rewards"]["right_amount"])
    unscored = sum(reward is None or reward != reward for reward in rewards)
    assert 0 < unscored < 256
    assert sum(line["trials"]) == 256 - unscored


def test_own_images_has_a_reward_that_scores_one_amount_alone(run, vision_model_path, receipts, monkeypatch):
    monkeypatch.setattr(VADEGRPOTrainer, "train", lambda self: None)
    monkeypatch.setattr(VADEGRPOTrainer, "save_model", lambda self: None)
    reward = run("own_images.py", "--model", vision_model_path, "--dataset", receipts)["right_amount"]
    texts = ["12.5", "The total is 12.50.", "13", "no idea", "1,012.50", "20 less 7.50 is 12.50", "12.5, so 12.50"]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    assert reward(completions, answer=["12.50"] * 7) == [1.0, 1.0, 0.0, 0.0, 0.0, None, 1.0]


@pytest.fixture
def questions(tmp_path):
    """A folder of rows with the columns `prompt`, `answer` and `id`."""
    rows = [{"prompt": each, "answer": str(n % 10), "id": f"row-{n}"} for n, each in enumerate(PROMPTS)]
    write_lines(tmp_path / "questions" / "train.jsonl", rows)
    return tmp_path / "questions"


@pytest.mark.slow
def test_warm_start_takes_over_and_publishes_a_posterior(hub, run, text_model_path, questions, make_args, capsys):
    rows = load_dataset(str(questions), split="train")
    first = make_args(max_steps=2, save_strategy="steps", push_to_hub=True, hub_model_id="acme/run", num_generations=8)
    train(text_model_path, rows, first, reward=accuracy_reward)
    shutil.rmtree(first.output_dir)
    theirs = load_posterior("acme/run-posterior")

    arguments = ["--posterior", "acme/run-posterior", "--publish_to", "you/run"]
    trainer = run("warm_start.py", "--model", text_model_path, "--dataset", questions, *arguments)["trainer"]
    shown = capsys.readouterr().out
    assert f"{len(theirs)} of 160 rows scored, at optimiser step 2" in shown
    assert theirs.sample_id[int(theirs.pass_rate.argmin())] in shown

    warm, *batches = batches_of(trainer)
    assert warm["sample_index"] == theirs.index.tolist()
    assert warm["trials"] == pytest.approx(0.2 * (theirs.alpha + theirs.beta))
    assert [len(line["sample_index"]) for line in batches] == [64, 64]
    ours = load_posterior("you/run-posterior")
    assert ours.metadata["global_step"] == 2
    assert set(ours.sample_id) > set(theirs.sample_id)


@pytest.fixture
def geometry(tmp_path):
    """A folder with the columns of hiyouga/geometry3k: `images`, `problem` and `answer`."""
    rows = {
        "images": [[Image.new("RGB", (56, 56), (number, 0, 0))] for number in range(40)],
        "problem": [f"<image>say a digit above {number % 10}" for number in range(40)],
        "answer": [str(number % 10) for number in range(40)],
    }
    features = Features(images=List(HubImage()), problem=Value("string"), answer=Value("string"))
    data = Dataset.from_dict(rows, features=features)
    (tmp_path / "geometry").mkdir()
    data.to_parquet(tmp_path / "geometry" / "train.parquet")
    return tmp_path / "geometry"


@pytest.mark.slow
def test_grpo_vlm_trains_an_adapter_of_qwen3_vl_on_pictures(run, geometry, tmp_path):
    changes = {'report_to="trackio"': 'report_to="none"', "max_completion_length=512": "max_completion_length=4"}
    changes["gradient_accumulation_steps=32"] = "gradient_accumulation_steps=4"
    model = write_family("qwen3_vl", tmp_path / "qwen3_vl")
    trainer = run("grpo_vlm.py", "--model", model, "--dataset", geometry, changes=changes, max_steps=4)["trainer"]
    assert_learned(trainer, rows=8)
    assert trainer.model.peft_config
    assert trainer._images.on


def test_every_script_can_be_run_by_uv_and_names_its_own_path():
    for path in EXAMPLES.glob("*.py"):
        head, _, rest = path.read_text(encoding="utf-8").partition("# ///\n")
        assert head.startswith("# /// script\n"), path
        about = tomllib.loads("".join(line.removeprefix("# ") for line in head.splitlines(keepends=True)[1:]))
        assert any(each.startswith("trl-vade") for each in about["dependencies"]), path
        assert f"uv run examples/{path.name}" in rest.partition('"""')[0], path
