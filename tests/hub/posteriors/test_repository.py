"""A posterior's repository: its folder, its card, and that both `datasets` and a real client read it.

`python -m tests.hub.posteriors.test_repository` writes model_cards/posterior_example.md anew.
"""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

from datasets import Dataset, load_dataset
from huggingface_hub import DatasetCard, snapshot_download

from tests.support.commands import run
from tests.support.posteriors import example_table, stage
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, VADEError
from trl_vade.hub.posteriors.repository import (
    CARD_FILE,
    describe,
    publish_posterior,
    render_posterior_card,
    stage_posterior,
    steps_in,
    table_path,
)
from trl_vade.hub.posteriors.source import load_posterior
from trl_vade.hub.uploading import HubTarget, commit_folder
from trl_vade.trainer.initial_posterior import read_warm_start

SHARED = HubTarget("you/posterior", "dataset")
EXAMPLE = Path(__file__).parents[3] / "model_cards" / "posterior_example.md"


INVENTED = "> This card is an example. Its names and figures are invented: no such run took place."


def example_card(revision=None):
    card = render_posterior_card(example_table(), [50, 100, 200], "you/qwen-vade-posterior", revision=revision)
    return card.replace("\n# ", f"\n{INVENTED}\n\n# ", 1)


# ------------------------------------------------------------------------------------------------ names and files


def test_the_steps_are_those_whose_table_is_there():
    files = ["README.md", "step-000200/posterior.parquet", "step-000100/posterior.parquet", "step-000300/notes.txt"]
    files += ["old/step-000400/posterior.parquet", "step-500/posterior.parquet", "step-0000600/posterior.parquet"]
    assert steps_in(iter(files)) == [100, 200]
    assert steps_in([table_path(step) for step in (7, 1234567)]) == [7, 1234567]


# ------------------------------------------------------------------------------------------------------- the card


def test_the_card_is_the_example_word_for_word():
    written = EXAMPLE.read_text(encoding="utf-8") if EXAMPLE.exists() else ""
    assert written == example_card(), "if this is meant: python -m tests.hub.posteriors.test_repository"


def test_the_cards_metadata_names_every_step_and_the_newest_as_the_default():
    data = DatasetCard(render_posterior_card(example_table(100), [50, 100, 200], "you/x")).data.to_dict()
    configs = {config["config_name"]: config for config in data["configs"]}
    assert list(configs) == ["latest", "step-000200", "step-000100", "step-000050"]
    assert [name for name, config in configs.items() if config.get("default")] == ["latest"]
    assert configs["latest"]["data_files"] == [{"split": "train", "path": "step-000100/posterior.parquet"}]
    assert configs["step-000200"]["data_files"] == [{"split": "train", "path": "step-000200/posterior.parquet"}]
    assert {"trl-vade", "grpo", "trl", "posterior"} <= set(data["tags"])


def test_a_fact_that_is_missing_is_left_out_and_nothing_says_none():
    table = example_table()
    bare = {name: table.metadata[name] for name in ("format_version", "global_step")}
    for facts in (bare, dict.fromkeys(table.metadata) | bare):
        card = render_posterior_card(replace(table, task=None, metadata=facts), [], "you/repo")
        assert "None" not in card
        assert "| saved at | optimiser step 200 |" in card
        assert "temperature |" not in card
        assert "`task`" not in card
        assert 'load_dataset("you/repo"' in card


def test_facts_from_anywhere_do_not_break_the_table():
    card = render_posterior_card(
        example_table(success_reward="a|b\n`c`", base_model="<b>", dataset=7, rollouts="many", preset=["x"]),
        [],
        "you/repo",
    )
    assert "| success | `a\\|b 'c'` of at least 0.5 |" in card
    assert "<b>" not in card
    assert "rollouts until then" not in card


# ------------------------------------------------------------------------------------------- read by other programs


def test_load_dataset_reads_the_newest_and_each_step(tmp_path):
    stage(tmp_path / "posterior", example_table(100, size=12), example_table(200))
    newest = load_dataset(str(tmp_path / "posterior"), split="train", cache_dir=str(tmp_path / "cache"))
    first = load_dataset(str(tmp_path / "posterior"), "step-000100", cache_dir=str(tmp_path / "cache"))["train"]
    assert (len(newest), len(first)) == (24, 12)
    assert newest.column_names == [
        *("sample_id", "index", "task", "alpha", "beta"),
        *("visits", "pass_rate", "last_step"),
    ]
    assert newest["alpha"] == example_table().alpha.tolist()


def test_load_dataset_reads_another_folder_of_the_same_name_and_not_its_cache(tmp_path):
    """datasets 5.2 takes a local folder for the one it has cached where name and card are the same."""
    sizes, cache = [], str(tmp_path / "cache")
    for place, size in (("one", 12), ("two", 20)):
        folder = stage(tmp_path / place / "posterior", example_table(100, size=size))
        names = (None, "step-000100")
        sizes.append([len(load_dataset(str(folder), name, split="train", cache_dir=cache)) for name in names])
    assert sizes == [[12, 12], [20, 20]]


# ------------------------------------------------------------------------------------------------- what is there


def shared(hub, *steps):
    """The repository after tables of these steps were published in this order."""
    for step in steps:
        publish_posterior(example_table(step, size=10 + step), SHARED)
    return hub.repos["datasets/you/posterior"]


def test_an_earlier_step_that_comes_late_takes_nothing_from_the_newest(hub):
    before = shared(hub, 12)
    card = before.files()[CARD_FILE]
    repo = shared(hub, 5)
    text = repo.files()[CARD_FILE].decode()
    assert text == render_posterior_card(example_table(12, size=22), [5, 12], "you/posterior")
    assert [line for line in card.decode().splitlines() if "saved at" in line or "0.9 to" in line] == [
        line for line in text.splitlines() if "saved at" in line or "0.9 to" in line
    ]
    assert len(load_posterior("you/posterior")) == 22
    assert len(load_posterior("you/posterior@step-000005")) == 15


def test_the_newest_step_is_what_the_card_calls_latest_also_beside_steps_of_an_abandoned_run(hub, tmp_path):
    """A run went back from step 12 to 3, and has pushed 5; then the missing step 4 is pushed by hand."""
    repo, target = shared(hub, 3, 12), HubTarget("you/posterior", "dataset")
    stage_posterior(tmp_path, example_table(5, size=15))
    commit_folder(target, tmp_path, message="5", render=lambda there: describe(tmp_path, target, there, newest=5))
    shared(hub, 4)
    assert len(load_posterior("you/posterior")) == 15
    configs = DatasetCard(repo.files()[CARD_FILE].decode()).data.configs
    assert configs[0]["data_files"][0]["path"] == "step-000005/posterior.parquet"
    local = snapshot_download("you/posterior", repo_type="dataset", local_dir=tmp_path / "local")
    assert len(load_posterior(local)) == len(load_dataset(local, split="train")) == 15
    shared(hub, 6)
    assert len(load_posterior("you/posterior")) == 16


def test_a_step_is_replaced_by_an_update_of_it_and_by_nothing_that_knows_less(hub):
    table = example_table(7, size=12)
    publish_posterior(table, SHARED)
    publish_posterior(table, SHARED)
    publish_posterior(example_table(7, size=13, rollouts=9000), SHARED)
    assert len(load_posterior("you/posterior")) == 13
    whole = example_table(7, size=13)
    hashed = [f"{row:016x}" for row in range(13)]
    facts = {name: value for name, value in whole.metadata.items() if name not in ("rewards", "sampler", "dataset")}
    for less, lost in (
        (replace(whole, sample_id=hashed), ["13 of its 13 rows", "question-0"]),
        (example_table(7, size=12), ["1 of its 13 rows"]),
        (replace(whole, task=None), ["tasks"]),
        (replace(whole, metadata=facts), ["2 facts", "dataset", "sampler"]),
    ):
        with refused(VADEError, names=["step-000007", *lost], offers=["--force"]):
            publish_posterior(less, SHARED)
    assert load_posterior("you/posterior").sample_id == whole.sample_id
    publish_posterior(replace(whole, sample_id=hashed, task=None), SHARED, force=True)
    assert load_posterior("you/posterior").sample_id == hashed


def test_a_table_on_a_branch_leaves_the_tag_to_the_main_one(hub):
    repo = shared(hub, 3)
    tags = dict(repo.tags)
    publish_posterior(example_table(3, size=24), replace(SHARED, revision="side"))
    publish_posterior(example_table(4, size=24), replace(SHARED, revision="side"))
    assert repo.tags == tags
    assert [len(load_posterior("you/posterior", name)) for name in ("main", "step-000003", "side")] == [13, 13, 24]
    publish_posterior(example_table(4, size=24), replace(SHARED, revision="main"))
    assert set(repo.tags) == {"step-000003", "step-000004"}


def test_each_line_of_a_card_on_a_branch_loads_what_is_on_the_branch(hub):
    """The main branch has a table of the same step, of another run."""
    there = example_table(100, size=12)
    publish_posterior(example_table(50, size=11), replace(SHARED, revision="exp"))
    publish_posterior(there, replace(SHARED, revision="exp"))
    publish_posterior(example_table(100, size=20), SHARED)
    repo = hub.repos["datasets/you/posterior"]
    card = repo.files("exp")[CARD_FILE].decode()
    assert "revision" not in repo.files()[CARD_FILE].decode()

    calls = [call for call in re.findall(r"load_\w+\(.+?\)", card) if "your-questions" not in call]
    loaded = [eval(call) for call in calls]
    assert [call.partition("(")[0] for call in calls] == ["load_dataset"] * 2 + ["load_posterior"] * 2
    assert [list(some["sample_id"]) for some in loaded[:2]] == [there.sample_id] * 2
    assert [table.sample_id for table in loaded[2:]] == [there.sample_id] * 2
    assert eval(calls[-1].replace("=100", "=50")).metadata["global_step"] == 50

    [command] = re.findall(r"```bash\ntrl-vade (.+?)\n```", card)
    assert json.loads(run(*shlex.split(command), "--json").stdout)["rows"] == 12

    begin = re.findall(r"```python\n(.+?)```", card, flags=re.DOTALL)[-1]
    exec(begin.replace('"run"', '"run", use_cpu=True, bf16=False'), names := {})
    rows = Dataset.from_dict({"prompt": there.sample_id, "id": there.sample_id})
    warm = read_warm_start(names["args"], rows)
    assert warm.source == f"you/posterior@{repo.branches['exp']}"
    assert len(warm.sample_index) == 12


def test_the_card_joins_the_posterior_with_its_questions(capsys, monkeypatch):
    table = example_table()
    join = re.findall(r"```python\n(.+?)```", example_card(), flags=re.DOTALL)[2]
    questions = Dataset.from_dict(
        {"id": (names := [*table.sample_id[::-1], "new", "newer"]), "prompt": [f"ask {name}" for name in names]}
    )
    exec(join, {"load_dataset": lambda name, split: questions, "table": table})
    hardest = table.sample_id[int(table.pass_rate.argmin())]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith(f"ask {hardest}")
    assert printed[-1].startswith("2 questions")


def test_the_card_shows_rows_and_counts_those_that_were_never_seen():
    table, card = example_table(), example_card()
    assert "the other 16 were never seen" in card
    order = table.pass_rate.argsort(kind="stable")
    for row in (*order[:3], *order[-3:]):
        assert f"| `{table.sample_id[row]}` | `{table.task[row]}` | {table.pass_rate[row]:.3f} |" in card
    few = render_posterior_card(replace(example_table(size=4), task=None), [], "you/repo")
    assert few.count("| `question-") == 4


def test_a_posterior_without_rows_is_refused_before_anything_is_made(hub):
    with refused(ConfigurationError, names=["no rows"]):
        publish_posterior(example_table(size=0), SHARED)
    assert hub.requests == []


# --------------------------------------------------------------------------------------------------------- samplers

CHOSEN = "they were chosen by their pass rates: their mean is not that of the data set"
UNKNOWN = "only rows that were scored: their mean need not be that of the data set. Nothing is known"


def test_a_card_claims_of_the_choice_what_is_known_of_the_sampler():
    chosen = ("chooses the questions of GRPO by it. The", CHOSEN)
    usual = ("this run took the questions in GRPO's usual order", "their mean is almost unbiased")
    own = ("of its own, `rules:Mine`, chose the questions. The", "`rules:Mine` chose them: their mean is not that")
    unknown = ("a Beta distribution for every row. The", UNKNOWN)
    warm = {"sampler": "uniform", "posterior_init": "you/rates", "warm_start_discount": 0.2}
    for facts, (start, limit) in (
        *(({"sampler": name}, chosen) for name in ("thompson", "greedy")),
        ({"sampler": "uniform"}, usual),
        ({"sampler": "rules:Mine"}, own),
        *(({"sampler": name}, unknown) for name in (None, 7, "a`|\n# b")),
        (warm, ("", "mean need not be that")),
    ):
        card = " ".join(render_posterior_card(example_table(**facts), [], "you/repo").split())
        assert start in re.search(r"trl_vade keeps.*? It shows", card)[0]
        assert limit in re.search(r"The table has.*? Nothing is known", card)[0]


# ------------------------------------------------------------------------------------------------------ warm starts


def test_a_run_that_began_with_another_posterior_says_so_and_claims_no_count_for_itself():
    for source, said in (("you/rates@abc123", "`you/rates@abc123`"), ("a local posterior", "a local posterior")):
        card = render_posterior_card(example_table(posterior_init=source, warm_start_discount=0.2), [], "you/repo")
        assert f"| started from | {said}, with a share of 0.2 of its counts |" in card
        assert "This run started from another posterior" in card
        assert "in this run or in the posterior that it started from" in card
        assert "are one visit" in card
        for claim in ("only from the rollouts", "generation batches in which", "at least once |"):
            assert claim not in card


if __name__ == "__main__":
    EXAMPLE.write_text(example_card(), encoding="utf-8")
