"""`scripts/prepare_data.py`: the whole mixture from stand-ins for all sources, and what the command line refuses."""

import json
import subprocess
import sys

import pytest
import yaml
from datasets import load_dataset
from transformers import AutoProcessor

from scripts.mixture import command as script
from scripts.mixture.sources import SOURCES
from tests.support.loopback_hub import LoopbackHub, run_client
from tests.support.mixture_stand_ins import content, make_mirror, put_on_hub
from tests.support.scripts import SCRIPTS, run
from trl_vade import load_snapshot
from trl_vade.data.prompt_lengths import prompt_lengths

BENCH = ["--evaluation_data", "AI4Math/MathVista@testmini"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where `load_dataset` keeps what it read, in place of the user's folder."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """Copies of all sources, a tenth larger than the mixture."""
    folder = tmp_path_factory.mktemp("mirror")
    make_mirror(folder, {task: source.count for task, source in SOURCES.items()})
    return folder


@pytest.fixture(scope="module")
def built(mirror, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    script.main(["--mirror", str(mirror), "--output_dir", str(folder), *BENCH])
    return folder


@pytest.mark.slow
def test_the_whole_mixture_has_9471_rows(built, cache):
    rows = load_dataset(str(built), cache_dir=cache)
    assert {split: part.num_rows for split, part in rows.items()} == {"train": 8524, "validation": 947}
    sources = rows["train"]["source"][:] + rows["validation"]["source"][:]
    assert {name: sources.count(name) for name in set(sources)} == {s.name: s.count for s in SOURCES.values()}
    assert len(set(rows["train"]["id"][:] + rows["validation"]["id"][:])) == 9471


@pytest.mark.slow
def test_the_card_has_the_command_and_the_counts(built):
    card = (built / "README.md").read_text()
    assert "python scripts/prepare_data.py --seed 0 --evaluation_data AI4Math/MathVista@testmini" in card
    assert "| 9,471 | 10,429 | 9,956 | 9,471 | 8,524 | 947 |" in card
    assert "this is not the whole mixture" not in card


def test_the_dry_run_shows_every_source_and_loads_nothing():
    code = (
        "import sys; from scripts.mixture.command import main; main(['--dry_run']);"
        "print(*[name for name in ('torch', 'datasets', 'huggingface_hub', 'pyarrow') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=SCRIPTS.parent)
    assert run.returncode == 0, run.stderr
    *table, loaded = run.stdout.split("\n")[:-1]
    assert loaded == ""
    text = "\n".join(table)
    for source in SOURCES.values():
        assert any(source.name in line and f"{source.count:,}" in line for line in table)
        assert f"{source.repo} ({source.licence}), revision {source.revision}" in text
    assert "9,471 rows: math 5,670, chart 2,476, science 1,325" in text
    assert "train 8,524, validation 947" in text
    assert "4.9 GB of files, 4.9 GB of them to load (8 min at 10 MB/s, 1 min at 100 MB/s)" in text


def test_the_dry_run_of_some_sources(capsys):
    script.main(["--dry_run", "--sources", "geos", "tabmwp"])
    shown = capsys.readouterr().out
    assert "717 rows: math 498, chart 219" in shown
    assert "geo3k" not in shown


def test_some_sources_with_another_instruction(mirror, tmp_path, capsys, cache):
    flags = ["--mirror", str(mirror), "--output_dir", str(tmp_path), "--sources", "tabmwp"]
    flags += ["--instruction", "Be brief."]
    script.main(flags)
    shown = capsys.readouterr().out
    assert "train 197, validation 22" in shown
    assert "0.0 GB of them to load" in shown
    table = [line.split() for line in shown.partition("Rows by source")[2].splitlines()]
    assert ["219", "219", "234", "242"] in [cells[-4:] for cells in table]
    row = load_dataset(str(tmp_path), split="train", cache_dir=cache)[0]
    assert row["prompt"][0]["content"].endswith("how much will it cost in total?\n\nBe brief.")
    assert "--sources tabmwp --instruction 'Be brief.'" in (tmp_path / "README.md").read_text()


def test_the_command_of_the_card_has_no_folder_of_this_machine(tmp_path):
    bench = tmp_path / "bench"
    bench.mkdir()
    args = script.parse(
        ["--mirror", "copies", "--output_dir", "out", "--evaluation_data", str(bench), "--allow_fewer"]
    )
    assert script.command(args) == (
        "python scripts/prepare_data.py --seed 0 --allow_fewer --evaluation_data bench --overlap_min_words 6"
    )


def test_a_source_that_is_named_twice_is_read_once():
    assert script.parse(["--sources", "geos", "tabmwp", "geos"]).sources == ["geos", "tabmwp"]


def test_private_without_a_push_is_refused(capsys):
    with pytest.raises(SystemExit):
        script.parse(["--private"])
    assert "--push_to_hub" in capsys.readouterr().err


def refusal(*arguments):
    with pytest.raises(SystemExit) as ended:
        script.main(list(map(str, arguments)))
    return str(ended.value)


def test_what_cannot_work_ends_with_its_message(mirror, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    message = refusal("--mirror", empty, "--output_dir", tmp_path / "out")
    assert message.startswith("The mixture was not built. The mirror")
    assert "no folder HuggingFaceM4/ChartQA" in message
    message = refusal("--mirror", mirror, "--output_dir", tmp_path / "o", "--evaluation_data", "no/such_set")
    assert "--evaluation_data no/such_set" in message


@pytest.mark.slow
def test_without_math_verify_it_says_so_before_anything_is_loaded(tmp_path):
    arguments = ["--output_dir", str(tmp_path / "out"), "--mirror", str(tmp_path)]
    code = "import sys; sys.modules['math_verify'] = None; from scripts.mixture import command"
    code += f"; command.main({arguments})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=SCRIPTS.parent)
    assert run.returncode == 1
    assert "math-verify" in run.stderr
    assert "The mixture (arXiv" not in run.stdout


def test_without_a_network_it_says_which_repository_it_could_not_reach(tmp_path, caplog):
    message = refusal("--output_dir", tmp_path / "out", "--sources", "chartqa")
    assert "HuggingFaceM4/ChartQA" in message
    assert "--evaluation_data is not set" in caplog.text


def test_a_push_that_fails_leaves_the_files_and_says_how_to_push_them(mirror, tmp_path, cache):
    folder = tmp_path / "out"
    flags = ["--mirror", mirror, "--output_dir", folder, "--sources", "tabmwp", "--push_to_hub", "you/mixture"]
    message = refusal(*flags)  # the tests are offline
    assert "complete, but not on the Hub" in message
    assert f"hf upload you/mixture {folder} --repo-type dataset" in message
    assert len(load_dataset(str(folder), split="train", cache_dir=cache)) == 197


@pytest.fixture
def hub(tmp_path):
    """A stand-in for the Hub that has the sources of the mirror, each at its pinned revision."""
    make_mirror(tmp_path / "mirror", {"tabmwp": SOURCES["tabmwp"].count})
    with LoopbackHub() as running:
        put_on_hub(running, tmp_path / "mirror", [SOURCES["tabmwp"]])
        repo = running.repos[f"datasets/{SOURCES['tabmwp'].repo}"]
        later = {path: b"" for path in repo.files() if path.endswith(".parquet")}
        repo.add("main", "a later revision that cannot be read", "", repo.files() | later)
        yield running


@pytest.mark.slow
def test_from_the_hub_and_back_to_it(hub, tmp_path, cache):
    """The real client: loads the pinned revision, builds, pushes; another process reads what arrived."""
    script = [sys.executable, SCRIPTS / "prepare_data.py", "--sources", "tabmwp", "--output_dir", "out"]
    run = run_client(hub, [*script, "--push_to_hub", "mixture", "--private"], tmp_path)
    assert f"{hub.url}/datasets/you/mixture" in run.stdout
    assert "0.0 GB of files" in run.stdout
    assert "HTTP" not in run.stderr
    assert "tabmwp(cauldron): 242 rows read" in run.stderr
    pushed = hub.repos["datasets/you/mixture"]
    assert pushed.private
    arrived = {path: data for path, data in pushed.files().items() if path != ".gitattributes"}
    assert arrived == content(tmp_path / "out")
    assert len(arrived) == 5
    code = "from datasets import load_dataset; print(load_dataset('you/mixture').num_rows)"
    assert "{'train': 197, 'validation': 22}" in run_client(hub, code, tmp_path).stdout


@pytest.mark.slow
def test_after_a_push_that_the_hub_refused_the_same_command_loads_nothing_again(hub, tmp_path):
    script = [sys.executable, SCRIPTS / "prepare_data.py", "--sources", "tabmwp", "--output_dir", "out"]
    script += ["--push_to_hub", "you/mixture"]
    hub.fault("/commit/main", status=500)
    run = run_client(hub, script, tmp_path, check=False)
    assert run.returncode == 1
    assert "The files in out are complete, but not on the Hub" in run.stderr
    assert hub.token not in run.stdout + run.stderr
    files = content(tmp_path / "out")
    asked = len(hub.requests)
    assert run_client(hub, script, tmp_path).returncode == 0
    assert not [request for request in hub.requests[asked:] if "parquet" in request and "LLaVA" in request]
    assert content(tmp_path / "out") == files
    assert set(hub.repos["datasets/you/mixture"].files()) >= {
        "README.md",
        "mixture.json",
        "data/train-00000-of-00001.parquet",
    }


@pytest.mark.slow
def test_the_training_script_takes_the_mixture_with_the_recipes_rewards(built, vision_model_path, tmp_path, cache):
    """Each task has its share, prompts that are too long are left out, the report is about the other rows."""
    rows = load_dataset(str(built), split="train", cache_dir=cache).shard(8, 0)
    rows.to_parquet(tmp_path / "part" / "train.parquet")
    lengths = prompt_lengths(rows, AutoProcessor.from_pretrained(vision_model_path))
    longest = int(lengths.max()) - 1
    recipe = yaml.safe_load((SCRIPTS.parent / "trl_vade" / "recipes" / "qwen2_5_vl_3b_grpo_vade.yaml").read_text())
    names = ["reward_funcs", "reward_weights", "vade_success_reward", "dataset_test_split", "vade_preset"]
    settings = {name: recipe[name] for name in names} | {
        "model_name_or_path": vision_model_path,
        "dataset_name": str(tmp_path / "part"),
        "output_dir": str(tmp_path / "run"),
        "vade_stratify_by": "task",
        "vade_max_prompt_length": longest,
        "per_device_train_batch_size": 44,
        "num_generations": 4,
        "max_completion_length": 4,
        "max_steps": 2,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    said = run("train_vade.py", "--config", str(tmp_path / "recipe.yaml"))
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"][0]
    shares = {name: state[name] for name in state if name.startswith("vade/selected_share/")}
    assert len(shares) == len(SOURCES)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["vade/selected_share/geo170k"] == pytest.approx(1778 / 9471, abs=1 / 11)
    assert {"rewards/accuracy_reward/mean", "rewards/format_reward/mean"} <= state.keys()
    assert "done at step" in said
    posterior = load_snapshot(tmp_path / "run").sampler_state["posterior"]
    assert posterior["num_samples"] == (lengths <= longest).sum() < len(rows)
