"""The Space of `examples/space`, in a real browser, on a repository that a real run has pushed."""

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import pytest
from huggingface_hub import HfApi
from starlette.responses import HTMLResponse

from tests.support.loopback import Loopback
from tests.support.runs import first_letter, rows_with_images, train
from trl_vade import load_posterior
from trl_vade.hub.posteriors.repository import steps_in
from trl_vade.selection.report.record import ROWS_FILE

BROWSER = os.environ.get("TRL_VADE_BROWSER")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not BROWSER, reason="TRL_VADE_BROWSER names no Python with tests/space/requirements.txt"),
]
HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "examples" / "space" / "index.html"
SEEN = """({
  text: document.body.innerText, title: document.title, fits: document.documentElement.scrollWidth <= innerWidth,
  cards: [...document.querySelectorAll(".card")].map(card => card.innerText),
  pictures: [...document.images].map(image => image.naturalWidth),
  points: [...document.querySelectorAll("circle")].map(point => point.textContent),
})"""
HOSTILE = """<img src="x" onerror="document.title = 'taken'"><script>document.title = 'taken'</script>"""


class Space(Loopback):
    """The page at an address of its own, so that the Hub's answers are those of another host."""

    async def _serve(self, scope, receive, send):
        await HTMLResponse(PAGE.read_text(encoding="utf-8"))(scope, receive, send)


def seen(hub, repo, width=1280, host="127.0.0.1"):
    """What a person sees who opens the page on a host; all names of hosts are this machine."""
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "QTWEBENGINE_DISABLE_SANDBOX": "1"}
    environment["QTWEBENGINE_CHROMIUM_FLAGS"] = '--host-resolver-rules="MAP * 127.0.0.1"'
    with Space() as space:
        address = f"{space.url.replace('127.0.0.1', host)}/?{urlencode({'repo': repo, 'endpoint': hub.url})}"
        command = [BROWSER, str(HERE / "browse.py"), address, str(width), SEEN]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def percent(share):
    return f"{int(100 * share + 0.5)} %"


@pytest.fixture
def published(hub, vision_model_path, make_args):
    """The content of `vade_rows.json` of a run on pictures, which is uploaded as the Space's README says."""
    args = make_args(max_steps=3, save_strategy="steps", save_steps=1, push_to_hub=True, hub_model_id="you/run")
    train(vision_model_path, rows_with_images(), args, reward=first_letter, report=True)
    file = Path(args.output_dir) / ROWS_FILE
    content = json.loads(file.read_text(encoding="utf-8"))
    hardest, second = (content["rows"][str(row)] for row in content["hardest"][:2])
    hardest["question"] += HOSTILE
    second["picture"] = f"{hub.url}/picture.png"
    file.write_text(json.dumps(content), encoding="utf-8")
    HfApi().upload_file(path_or_fileobj=file, path_in_repo=ROWS_FILE, repo_id="you/run-posterior", repo_type="dataset")
    return [content["rows"][str(row)] for row in content["hardest"]]


def test_the_page_shows_how_pass_rates_moved_and_the_hardest_rows_with_their_pictures(hub, published):
    for width in (1280, 390):
        page = seen(hub, "you/run-posterior", width)
        steps = steps_in(hub.repos["datasets/you/run-posterior"].files())
        means = {step: load_posterior("you/run-posterior", step=step).pass_rate.mean() for step in steps}
        assert page["points"] == [f"step {step}: mean {percent(mean)}" for step, mean in means.items()]
        assert len(steps) > 1
        for card, row in zip(page["cards"], published[:6], strict=True):
            texts = [row[name].strip() for name in ("id", "question", "answer", "completion")]
            for text in (*texts, f"{percent(row['pass_rate'])} after"):
                assert text in card
        assert [size > 0 for size in page["pictures"]] == [True] * 5  # of six: that of another host is left out
        assert page["fits"]
        assert page["title"] == "you/run-posterior: pass rates"  # the markup in a question stayed a text
    assert not any("picture.png" in request for request in hub.requests)


def test_what_cannot_be_shown_is_said_in_words(hub):
    file = "step-000100/vade_posterior.safetensors"
    hub.add_repo("datasets/you/private", private=True)
    hub.add_repo("datasets/you/empty")
    hub.add_repo("datasets/you/damaged").add("main", "", "", {file: b"\xff" * 80})
    for repo, words in {
        "you/nothing": "There is no public data set you/nothing",
        "you/private": "it is missing, misspelt or private",
        "you/empty": "you/empty holds no posterior",
        "you/damaged": f"{file} cannot be read: its header is longer than it can be.",
        "../..": "is no name of a repository",
    }.items():
        assert words in seen(hub, repo)["text"]


def test_a_page_on_another_host_asks_the_hub_alone(hub):
    """Else a link could show the figures of any server under the address of a Space."""
    assert "https://huggingface.co does not answer" in seen(hub, "you/nothing", host="you-page.example")["text"]
    assert hub.requests == []
