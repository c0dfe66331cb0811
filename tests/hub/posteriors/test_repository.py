"""A posterior's repository: its folder, its card, and that both `datasets` and a real client read it.

`python -m tests.hub.posteriors.test_repository` writes model_cards/posterior_example.md anew.
"""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

from datasets import load_dataset
from huggingface_hub import snapshot_download

from tests.support.commands import run
from tests.support.posteriors import QUESTIONS, example_table, named, same, save_example, stage, table_in
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.hub.card_parts import CARD_FILE
from trl_vade.hub.posteriors.repository import load_posterior, posterior_card, publish_posterior, steps_in
from trl_vade.hub.posteriors.table import TYPES
from trl_vade.hub.uploading import HubTarget
from trl_vade.trainer.initial_posterior import read_warm_start

SHARED = HubTarget("you/posterior", "dataset")
EXAMPLE = Path(__file__).parents[3] / "model_cards" / "posterior_example.md"
INVENTED = "> This card is an example. Its names and figures are invented: no such run took place."


def example_card(revision=None):
    card = posterior_card(example_table(), [50, 100, 200], "you/qwen-vade-posterior", revision=revision)
    return card.replace("\n# ", f"\n{INVENTED}\n\n# ", 1)


def test_the_steps_are_those_whose_posterior_is_there():
    file = "vade_posterior.safetensors"
    there = ["README.md", f"step-000200/{file}", f"step-000100/{file}", f"step-1234567/{file}", file]
    there += [f"old/step-000400/{file}", f"step-500/{file}", f"step-0000600/{file}", "step-000300/posterior.parquet"]
    assert steps_in(iter(there)) == [100, 200, 1234567]


def test_the_card_is_the_example_word_for_word():
    written = EXAMPLE.read_text(encoding="utf-8") if EXAMPLE.exists() else ""
    assert written == example_card(), "if this is meant: python -m tests.hub.posteriors.test_repository"


def test_a_fact_that_is_missing_is_left_out_and_nothing_says_none():
    table = example_table()
    always = ("global_step", "generation_batches", "num_samples", "decay_sampled", "decay_unsampled")
    bare = {name: table.metadata[name] for name in always}
    for facts in (bare, dict.fromkeys(table.metadata) | bare):
        card = posterior_card(replace(table, task=None, metadata=facts), [], "you/repo")
        assert "None" not in card
        assert "| `global_step` | `200` |" in card
        assert "| `temperature` |" not in card
        assert 'load_dataset("you/repo"' in card


def test_names_of_strangers_are_cut_and_steer_no_terminal_and_a_data_set_without_an_owner_is_no_link():
    table = example_table(dataset="testbed", base_model="x" * 999, success_reward="\u202eevil\x1b[31m" + "x" * 999)
    names = [f"{row}\x1b]0;\u202e\n| {'y' * 999}" for row in range(len(table))]
    card = posterior_card(replace(table, sample_id=names, task=names), [], "you/repo")
    assert all(sign.isprintable() for sign in card.replace("\n", ""))
    assert "datasets/testbed" not in card
    assert 'load_dataset("testbed"' not in card
    assert max(map(len, re.findall("y+", card))) < 60
    assert max(map(len, re.findall("x{9,}", card))) < 140


def test_load_dataset_reads_the_newest_and_each_step(tmp_path):
    stage(tmp_path / "posterior", (100, 12), (200, 24))
    newest = load_dataset(str(tmp_path / "posterior"), split="train", cache_dir=str(tmp_path / "cache"))
    first = load_dataset(str(tmp_path / "posterior"), "step-000100", cache_dir=str(tmp_path / "cache"))["train"]
    assert (len(newest), len(first)) == (24, 12)
    table = example_table()
    assert newest.to_dict() == {name: list(getattr(table, name)) for name in TYPES}
    assert newest["sample_id"] == QUESTIONS["id"][:24]


def test_load_dataset_reads_another_folder_of_the_same_name_and_not_its_cache(tmp_path):
    """datasets 5.2 takes a local folder for the one it has cached where name and card are the same."""
    sizes, cache = [], str(tmp_path / "cache")
    for place, size in (("one", 12), ("two", 20)):
        folder = stage(tmp_path / place / "posterior", (100, size))
        names = (None, "step-000100")
        sizes.append([len(load_dataset(str(folder), name, split="train", cache_dir=cache)) for name in names])
    assert sizes == [[12, 12], [20, 20]]


def publish(folder, step, size, target=SHARED):
    file = save_example(folder, step, size)
    publish_posterior(file, named(file), target)
    return file


def test_a_step_is_the_very_file_of_the_run(hub, tmp_path):
    file = publish(tmp_path, 100, 12)
    files = hub.repos["datasets/you/posterior"].files()
    assert files["step-000100/vade_posterior.safetensors"] == file.read_bytes()
    there, here = load_posterior("you/posterior@step-000100"), table_in(file)
    same(replace(there, metadata={}), replace(here, metadata={}))
    places = {"source": "you/posterior", "revision": hub.repos["datasets/you/posterior"].branches["main"]}
    assert there.metadata == here.metadata | places
    assert not hub.repos["datasets/you/posterior"].tags


def test_a_push_deletes_what_is_later_and_all_readers_agree_on_the_newest(hub, tmp_path):
    """A run went back from step 12 to 3, and pushes 5."""
    for step in (3, 12, 5):
        publish(tmp_path / "run", step, 10 + step)
    repo = hub.repos["datasets/you/posterior"]
    assert steps_in(repo.files()) == [3, 5]
    assert not [path for path in repo.files() if path.startswith("step-000012")]
    assert repo.files()[CARD_FILE].decode() == posterior_card(example_table(5, size=15), [3, 5], "you/posterior")
    local = snapshot_download("you/posterior", repo_type="dataset", local_dir=tmp_path / "local")
    sizes = [len(load_posterior(place)) for place in ("you/posterior", local)]
    assert [*sizes, len(load_dataset(local, split="train"))] == [15, 15, 15]
    publish(tmp_path / "run", 5, 17)
    assert len(load_posterior("you/posterior")) == 17


def test_each_line_of_a_card_on_a_branch_loads_what_is_on_the_branch(hub, tmp_path):
    """The main branch has the same step, of another run."""
    publish(tmp_path, 50, 11, branch := replace(SHARED, revision="exp"))
    there = named(publish(tmp_path, 100, 12, branch))
    publish(tmp_path / "main", 100, 20)
    repo = hub.repos["datasets/you/posterior"]
    card = repo.files("exp")[CARD_FILE].decode()
    assert "revision=" not in repo.files()[CARD_FILE].decode()

    calls = [call for call in re.findall(r"load_\w+\(.+?\)", card) if "your-questions" not in call]
    loaded = [eval(call) for call in calls]
    assert [call.partition("(")[0] for call in calls] == ["load_dataset"] * 2 + ["load_posterior"]
    assert [list(some["sample_id"]) for some in loaded[:2]] == [there.sample_id] * 2
    assert loaded[2].index.tolist() == there.index.tolist()
    assert eval(calls[-1].replace("=100", "=50")).metadata["global_step"] == 50

    [command] = re.findall(r"```bash\ntrl-vade (.+?)\n```", card)
    assert json.loads(run(*shlex.split(command), "--json").stdout)["rows"] == 12

    begin = re.findall(r"```python\n(.+?)```", card, flags=re.DOTALL)[-1]
    exec(begin.replace('"run"', '"run", use_cpu=True, bf16=False'), names := {})
    table = read_warm_start(names["args"])
    assert (table.metadata["revision"], len(table)) == (repo.branches["exp"], 12)


def test_a_posterior_without_rows_is_refused_before_anything_is_made(hub, tmp_path):
    with refused(ConfigurationError, names=["no rows"]):
        publish(tmp_path, 100, 0)
    assert hub.requests == []


if __name__ == "__main__":
    EXAMPLE.write_text(example_card(), encoding="utf-8")
