"""`scripts/prepare_data.py`: the whole mixture from stand-ins for all sources, and what the command line refuses."""

import subprocess
import sys

import pytest
from datasets import load_dataset

from scripts.mixture import command as script
from scripts.mixture.sources import SOURCES
from tests.support.loopback_hub import LoopbackHub, run_client
from tests.support.mixture_stand_ins import content, make_mirror, put_on_hub
from tests.support.scripts import SCRIPTS

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
def test_the_whole_mixture_has_9471_rows_and_a_card_with_the_command_and_the_counts(built, cache):
    rows = load_dataset(str(built), cache_dir=cache)
    assert {split: part.num_rows for split, part in rows.items()} == {"train": 8524, "validation": 947}
    sources = rows["train"]["source"][:] + rows["validation"]["source"][:]
    assert {name: sources.count(name) for name in set(sources)} == {s.name: s.count for s in SOURCES.values()}
    assert len(set(rows["train"]["id"][:] + rows["validation"]["id"][:])) == 9471
    card = (built / "README.md").read_text()
    assert "python scripts/prepare_data.py --seed 0 --evaluation_data AI4Math/MathVista@testmini" in card
    assert "| 9,471 | 10,429 | 9,956 | 9,471 | 8,524 | 947 |" in card
    assert "this is not the whole mixture" not in card


def process(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=SCRIPTS.parent)


def test_the_dry_run_shows_every_source_and_loads_nothing(capsys):
    run = process(
        "import sys; from scripts.mixture.command import main; main(['--dry_run']);"
        "print(*[name for name in ('torch', 'datasets', 'huggingface_hub', 'pyarrow') if name in sys.modules])"
    )
    assert run.returncode == 0, run.stderr
    *table, loaded = run.stdout.split("\n")[:-1]
    assert loaded == ""
    for source in SOURCES.values():
        assert any(source.name in line and f"{source.count:,}" in line for line in table)
        assert f"{source.repo} ({source.licence}), revision {source.revision}" in run.stdout
    parts = ("9,471 rows: math 5,670, chart 2,476, science 1,325", "train 8,524, validation 947", "4.9 GB of files")
    assert [part for part in parts if part not in run.stdout] == []
    script.main(["--dry_run", "--sources", "geos", "tabmwp", "geos"])
    shown = capsys.readouterr().out
    assert "717 rows: math 498, chart 219" in shown
    assert "geo3k" not in shown


def test_some_sources_with_another_instruction(mirror, tmp_path, capsys, cache):
    flags = ["--mirror", str(mirror), "--output_dir", str(tmp_path), "--sources", "tabmwp"]
    script.main([*flags, "--instruction", "Be brief."])
    shown = capsys.readouterr().out
    assert "train 197, validation 22" in shown
    table = [line.split() for line in shown.partition("Rows by source")[2].splitlines()]
    assert ["219", "219", "234", "242"] in [cells[-4:] for cells in table]
    row = load_dataset(str(tmp_path), split="train", cache_dir=cache)[0]
    assert row["prompt"][0]["content"].endswith("how much will it cost in total?\n\nBe brief.")
    assert "--sources tabmwp --instruction 'Be brief.'" in (tmp_path / "README.md").read_text()
    (tmp_path / "bench").mkdir()
    flags = ["--mirror", "copies", "--output_dir", "out", "--evaluation_data", str(tmp_path / "bench")]
    flags += ["--allow_fewer"]
    assert script.command(script.parse(flags)) == (  # without a folder of this machine
        "python scripts/prepare_data.py --seed 0 --allow_fewer --evaluation_data bench --overlap_min_words 6"
    )


def refusal(*arguments):
    with pytest.raises(SystemExit) as ended:
        script.main(list(map(str, arguments)))
    return str(ended.value)


def test_what_cannot_work_ends_with_its_message(mirror, tmp_path, cache, caplog, capsys):
    (tmp_path / "empty").mkdir()
    message = refusal("--mirror", tmp_path / "empty", "--output_dir", tmp_path / "out")
    assert message.startswith("The mixture was not built. The mirror")
    assert "no folder HuggingFaceM4/ChartQA" in message
    to = ["--output_dir", tmp_path / "out"]
    assert "--evaluation_data no/such_set" in refusal("--mirror", mirror, *to, "--evaluation_data", "no/such_set")
    assert "HuggingFaceM4/ChartQA" in refusal(*to, "--sources", "chartqa")  # the tests are offline
    assert "--evaluation_data is not set" in caplog.text
    message = refusal("--mirror", mirror, *to, "--sources", "tabmwp", "--push_to_hub", "you/mixture")
    assert "complete, but not on the Hub" in message
    assert f"hf upload you/mixture {tmp_path / 'out'} --repo-type dataset" in message
    assert len(load_dataset(str(tmp_path / "out"), split="train", cache_dir=cache)) == 197
    refusal("--private")
    assert "--push_to_hub" in capsys.readouterr().err


@pytest.mark.slow
def test_without_math_verify_it_says_so_before_anything_is_loaded(tmp_path):
    arguments = ["--output_dir", str(tmp_path / "out"), "--mirror", str(tmp_path)]
    code = "import sys; sys.modules['math_verify'] = None; from scripts.mixture import command"
    run = process(f"{code}; command.main({arguments})")
    assert (run.returncode, "math-verify" in run.stderr, "The mixture (arXiv" in run.stdout) == (1, True, False)


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
def test_from_the_hub_and_back_to_it_and_after_a_refused_push_nothing_is_loaded_again(hub, tmp_path):
    """The real client: loads the pinned revision, builds, pushes; another process reads what arrived."""
    script = [sys.executable, SCRIPTS / "prepare_data.py", "--sources", "tabmwp", "--output_dir", "out"]
    script += ["--push_to_hub", "mixture", "--private"]
    hub.fault("/commit/main", status=500)
    run = run_client(hub, script, tmp_path, check=False)
    assert run.returncode == 1
    assert "The files in out are complete, but not on the Hub" in run.stderr
    assert "tabmwp(cauldron): 242 rows read" in run.stderr
    assert hub.token not in run.stdout + run.stderr
    files, asked = content(tmp_path / "out"), len(hub.requests)
    assert f"{hub.url}/datasets/you/mixture" in run_client(hub, script, tmp_path).stdout
    assert not [request for request in hub.requests[asked:] if "parquet" in request and "LLaVA" in request]
    pushed = hub.repos["datasets/you/mixture"]
    assert pushed.private
    arrived = {path: data for path, data in pushed.files().items() if path != ".gitattributes"}
    assert arrived == content(tmp_path / "out") == files
    code = "from datasets import load_dataset; print(load_dataset('you/mixture').num_rows)"
    assert "{'train': 197, 'validation': 22}" in run_client(hub, code, tmp_path).stdout
