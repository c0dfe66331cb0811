"""docs/reference says what the code has: pages are made again and compared, names are those of real runs."""

import re
from pathlib import Path

import pytest

import trl_vade
from tests.docs.reference import FOLDER, PAGES
from tests.support.rows import with_variants
from tests.support.runs import says_a_digit, train
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, errors, rewards, samplers


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_makes_of_it(name):
    page = (FOLDER / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "run `python -m tests.docs.reference`"


def test_the_api_has_every_public_name():
    shown = set(re.findall(r"^::: [\w.]+\.(\w+)$", (FOLDER / "api.md").read_text(), flags=re.MULTILINE))
    public = {*trl_vade.__all__} - {"__version__"}
    public |= {name for room in (samplers, rewards) for name, value in vars(room).items() if callable(value)}
    public |= {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    assert shown == public


def first_column(page):
    """The names in the first column of all tables: of each section by its heading."""
    sections = re.split(r"^## (.+)\n", (FOLDER / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = zip(["", *sections[1::2]], sections[::2], strict=True)
    return {heading: re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE) for heading, text in named}


# ----------------------------------------------------------------------------------------------------------- metrics


def graded(completions, limit, **columns):
    return [len(completion[0]["content"]) % 3 / 2 for completion in completions]


def logged_by(trainer):
    return {name for entry in trainer.state.log_history for name in entry if name.startswith("vade/")}


def of_every_run(tables):
    return {*tables[""], *tables["What is trained on"]} - {"vade/kept_tokens_share"}


def test_the_metrics_are_those_that_a_run_logs(text_model_path, text_rows, make_args):
    tables = first_column("metrics.md")
    trainer = train(text_model_path, text_rows, make_args(max_steps=1, vade_down_sampling="d3s"))
    assert sorted(tables[""] + tables["What is trained on"]) == sorted(logged_by(trainer))


@pytest.mark.parametrize("reward", [says_a_digit, graded])
def test_the_metrics_of_strata_and_spreads_are_those_that_such_a_run_logs(
    text_model_path, text_rows, make_args, reward
):
    rows = text_rows.add_column("task", ["a", "b"] * (len(text_rows) // 2))
    trainer = train(text_model_path, rows, make_args(max_steps=2, vade_stratify_by="task"), reward)
    tables = first_column("metrics.md")
    expected = {*of_every_run(tables), *(name.replace("<value>", v) for name in tables["With strata"] for v in "ab")}
    if reward is graded:
        expected = {name.replace("pass_rate", "spread") for name in expected}
        assert {*tables["With spreads"]} == {name for name in expected if "spread" in name and name.count("/") == 1}
    assert expected == logged_by(trainer)


def test_the_metrics_of_variants_are_those_that_such_a_run_logs(text_model_path, text_rows, make_args):
    tables = first_column("metrics.md")
    variants = [[{"kind": "text", "prompt": [{"role": "user", "content": f"say {n}"}]}] for n in range(len(text_rows))]
    args = make_args(max_steps=2, vade_variants="of", vade_advantage="diva")
    trainer = train(text_model_path, with_variants(text_rows, variants), args)
    kinds = {name.replace("<value>", v) for name in tables["With strata"] for v in ("original", "text")}
    assert {*of_every_run(tables), *kinds, *tables["With variants"]} == logged_by(trainer)


# ------------------------------------------------------------------------------------------------------------- files


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def both_runs(text_model_path, text_rows, make_args, tmp_path):
    """The folders of a run and of its stock twin."""
    from trl import GRPOConfig, GRPOTrainer

    folders = [tmp_path / "ours", tmp_path / "stock"]
    kinds = (VADEGRPOConfig, VADEGRPOTrainer), (GRPOConfig, GRPOTrainer)
    saves = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1, "num_iterations": 2}
    for folder, (config, trainer_class) in zip(folders, kinds, strict=True):
        args = make_args(config, **saves, sync_ref_model=True, beta=0.1, output_dir=str(folder))
        trainer = train(text_model_path, text_rows, args, trainer_class=trainer_class, report=True)
        trainer.save_model()
        trainer.save_state()
        trainer.create_model_card()
    return folders


def test_the_files_are_those_that_a_run_leaves_beside_the_files_of_trl(both_runs):
    ours, stock = both_runs
    tables = first_column("files.md")
    of_checkpoint = {*tables["In every checkpoint"]} - {"sample_index", "alpha", "last_update", "visits", "sample_key"}
    in_some = {name.replace("<process>", "00000") for name in tables["In checkpoints only"]}
    in_output = {name for name in tables["In the output directory"] if "<" not in name}
    in_checkpoint = {f"checkpoint-1/{name}" for name in of_checkpoint | in_some}
    assert files_in(ours) - files_in(stock) == in_checkpoint | of_checkpoint | in_output
    assert files_in(stock) - files_in(ours) == set()


def test_the_arrays_are_those_of_a_saved_posterior(checkpointed_run):
    from safetensors.numpy import load_file

    _, folder = checkpointed_run()
    text = (FOLDER / "files.md").read_text(encoding="utf-8").split("| array |")[1].split("\n\n")[0]
    arrays = {name for line in text.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert arrays == load_file(folder / "vade_posterior.safetensors").keys()
