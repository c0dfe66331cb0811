"""The faults of other libraries: each script prints what its page says, until the library has mended the fault."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import fences
from tests.docs.prose import ROOT

FOLDER = ROOT / "docs" / "upstream"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
FACTS = ("Library", "Reported", "Corrected here by", "Switched off")


def facts(name):
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", (FOLDER / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows[1:])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_filed_as_it_is(name):
    path = FOLDER / f"{name}.md"
    (script,), (expected, actual) = fences(path, "py"), fences(path, "text")
    compile(script, name, "exec")
    assert "trl_vade" not in script
    assert expected != actual
    assert tuple(facts(name)) == FACTS
    assert f"]({name}.md)" in (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_code_that_corrects_it_is_where_the_page_says(name):
    words = re.findall(r"`([\w/.]+)`", facts(name)["Corrected here by"])
    source = (ROOT / "trl_vade" / words[-1]).read_text(encoding="utf-8")
    assert all(re.search(rf"(def|class) {part}\b", source) for word in words[:-1] for part in word.split("."))


def assert_prints_what_its_page_says(name, model, folder, *starter, **environment):
    (script,), (_, actual) = fences(FOLDER / f"{name}.md", "py"), fences(FOLDER / f"{name}.md", "text")
    Path(folder / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *starter, "script.py"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"HF_HUB_OFFLINE": "1", "HOME": str(folder), "OMP_NUM_THREADS": "1", "MODEL": model, **environment},
    )
    logged = re.compile(r"\{'(?!image_token_id)|\([\w-]+ pid=")  # by the Trainer and by vLLM
    printed = [line for line in done.stdout.splitlines(keepends=True) if not logged.match(line)]
    assert "".join(printed) == actual, done.stderr[-2000:]


def pages_that_need(library):
    """The pages whose script needs vllm or lmms_eval, which have environments of their own, or None of these."""
    of_library = {"vllm": ("import LLM", "use_vllm"), "lmms_eval": ("lmms_eval",)}

    def needed(name):
        script = fences(FOLDER / f"{name}.md", "py")[0]
        return next((each for each, words in of_library.items() if any(word in script for word in words)), None)

    return [name for name in PAGES if needed(name) == library]


@pytest.mark.slow
@pytest.mark.parametrize("name", pages_that_need(None))
def test_the_stock_library_still_has_the_fault(name, vision_model_path, tmp_path):
    assert_prints_what_its_page_says(name, vision_model_path, tmp_path)
