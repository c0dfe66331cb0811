"""docs/reference says what the code has: pages are made again and compared, names are those of real runs."""

import re

import pytest
from safetensors.numpy import load_file
from trl import GRPOConfig, GRPOTrainer

import trl_vade
from tests.docs.pages import table_rows
from tests.docs.reference import FOLDER, PAGES
from tests.support.rows import with_variants
from tests.support.runs import says_a_digit, train
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, errors, rewards, samplers

pytestmark = pytest.mark.docs


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_makes_of_it(name):
    page = (FOLDER / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "run `python -m tests.docs.reference`"


def test_the_api_has_every_public_name():
    shown = set(re.findall(r"^::: [\w.]+\.(\w+)$", (FOLDER / "api.md").read_text(), flags=re.MULTILINE))
    public = {*trl_vade.__all__} - {"__version__"}
    public |= {name for room in (samplers, rewards) for name, value in vars(room).items() if callable(value)}
    public |= {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert shown == public


def named(page, heading="", **placeholders):
    """The names in code in the first column of the tables under a heading."""
    names = [name for row in table_rows(FOLDER / page, heading) for name in re.findall(r"`([^`]+)`", row[0])]
    return {re.sub("<(.+?)>", lambda found: placeholders.get(found[1], found[0]), name) for name in names}


def graded(completions, limit, **columns):
    return [len(completion[0]["content"]) % 3 / 2 for completion in completions]


OF_VARIANTS = {"vade_variants": "of", "vade_advantage": "diva"}


@pytest.mark.parametrize(
    ("settings", "reward", "values"),
    [
        ({"vade_down_sampling": "d3s"}, says_a_digit, ()),
        ({"vade_stratify_by": "task", "vade_replay": 1}, says_a_digit, ("a", "b")),
        ({"vade_stratify_by": "task"}, graded, ("a", "b")),
        (OF_VARIANTS, says_a_digit, ("original", "text")),
    ],
    ids=["d3s", "strata", "spreads", "variants"],
)
def test_the_metrics_are_those_that_a_run_logs(text_model_path, text_rows, make_args, settings, reward, values):
    rows = text_rows.add_column("task", ["a", "b"] * (len(text_rows) // 2))
    if settings == OF_VARIANTS:
        prompts = [[{"role": "user", "content": f"say {number}"}] for number in range(len(rows))]
        rows = with_variants(text_rows, [[{"kind": "text", "prompt": prompt}] for prompt in prompts])
    trainer = train(text_model_path, rows, make_args(max_steps=2, **settings), reward)
    expected = named("metrics.md") | named("metrics.md", "What is trained on")
    expected -= set() if "vade_down_sampling" in settings else {"vade/kept_tokens_share"}
    expected -= set() if "vade_replay" in settings else {name for name in expected if "replay" in name}
    for value in values:
        expected |= {name for name in named("metrics.md", "With strata", value=value) if name.endswith(f"/{value}")}
    if reward is graded:
        expected = {name.replace("pass_rate", "spread") for name in expected}
        assert named("metrics.md", "With spreads") <= expected
    expected |= named("metrics.md", "With variants") if settings == OF_VARIANTS else set()
    assert expected == {name for entry in trainer.state.log_history for name in entry if name.startswith("vade/")}


def test_the_files_are_those_that_a_run_leaves_beside_trls(text_model_path, text_rows, make_args, tmp_path):
    left = []
    for config, trainer_class in ((VADEGRPOConfig, VADEGRPOTrainer), (GRPOConfig, GRPOTrainer)):
        folder = tmp_path / trainer_class.__name__
        saves = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1, "num_iterations": 2}
        args = make_args(config, **saves, sync_ref_model=True, beta=0.1, output_dir=str(folder))
        trainer = train(text_model_path, text_rows, args, trainer_class=trainer_class, report=True)
        trainer.save_model()
        trainer.save_state()
        trainer.create_model_card()
        left.append({path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()})
    ours, stock = left
    arrays = {name for name in named("files.md", "In every checkpoint") if "." not in name}
    assert arrays == load_file(tmp_path / "VADEGRPOTrainer" / "vade_posterior.safetensors").keys()
    everywhere = named("files.md", "In every checkpoint") - arrays
    in_checkpoint = everywhere | named("files.md", "In checkpoints only", process="00000")
    in_output = {name for name in named("files.md", "In the output directory") if "<" not in name}
    assert ours - stock == {f"checkpoint-1/{name}" for name in in_checkpoint} | everywhere | in_output
    assert stock - ours == set()
