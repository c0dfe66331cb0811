"""A table of engines: log-probabilities, seconds, resume; stock TRL beside ours.

usage: PYTHONPATH=tests/engines/site python -m tests.engines.table [--steps 12] [--settings JSON]

In the environment of `requirements.txt`. Each line is a run of the fine-tuned testbed model on 16 rows with images,
and one that resumes from its third step.
"""

import argparse
import json
import re
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from tests.engines.launch import differences, start
from tests.engines.server import running_server
from trl_vade.testbed import load_testbed_model

ENGINES = {  # name: engine, processes, settings
    "transformers": ("hf", 1, {}),
    "vLLM colocate": ("colocate", 1, {}),
    "vLLM colocate, two processes": ("colocate", 2, {}),
    "vLLM colocate, tensor parallel over two": ("colocate", 2, {"vllm_tensor_parallel_size": 2}),
    "vLLM server": ("server", 1, {}),
}


def cells(engine: str, processes: int, trainer: str, steps: int, url: str, settings: dict) -> Iterator[str]:
    """What the table says of an engine under a trainer."""
    share = {"processes": processes, "per_device_train_batch_size": 32 // processes, "placeholders_excluded": False}
    options = ["--trainer", trainer, "--steps", steps, *(["--server", url] if engine == "server" else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = start(folder, engine, *options, **share, **settings)[0]
        resumed = start(folder, engine, *options, "--resume", 3, **share, **settings)[0]
    found = differences(whole.steps)
    yield f"{statistics.mean(found):.1e} (at most {max(found):.1e})"
    seconds = [step["seconds"] for step in whole.steps[1:]]
    yield f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
    same = [step["weights"] for step in resumed.steps] == [step["weights"] for step in whole.steps[3:]]
    yield "bit for bit" if same else "no"


def first_error(text: str) -> str:
    """What a run said as it died, of all its processes; not what the others then said of it."""
    errors = re.findall(r"^(?:\[rank\d\]: )?\w*Error: .*$", text, re.MULTILINE)
    told = [each for each in errors if "closed by peer" not in each and "ChildFailedError" not in each]
    return (told or errors or ["without a word"])[0][:120]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help="of the trainer")
    parser.add_argument("--only", nargs="+", choices=[*ENGINES], default=[*ENGINES], help="some of the engines")
    options = parser.parse_args()
    print("| engine | trainer | difference of log-probabilities | seconds a step | resume exact |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    model = str(load_testbed_model(progress=False))
    with tempfile.TemporaryDirectory() as logs:
        for name in options.only:
            engine, processes, more = ENGINES[name]
            for trainer in ("stock", "vade"):
                served = running_server(model, Path(logs) / trainer) if engine == "server" else nullcontext("")
                with served as url:
                    try:
                        found = [*cells(engine, processes, trainer, options.steps, url, more | options.settings)]
                    except RuntimeError as error:
                        found = [f"died: {first_error(str(error))}", "-", "-"]
                shown = {"stock": "stock TRL", "vade": "trl_vade"}[trainer]
                print(f"| {name} | {shown} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
