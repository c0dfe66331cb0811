"""The builder of variants, whole: pictures by a seed, and texts of an LLM that is not trusted."""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from datasets import Dataset

from examples.variants.__main__ import load_rows, main, read_options
from examples.variants.pictures import IMAGE_KINDS
from trl_vade.data.variants import read_variants, with_known_originals
from trl_vade.samplers.problems import VariantRows, kind_offsets

ANSWERS = {"How many apples are 3 and 4?": "7", "How many pears are 5 and 6?": "11"}
GOOD = {
    "How many apples are 3 and 4?": "With 3 apples and 4 apples, how many apples are there?",
    "How many pears are 5 and 6?": "With some pears and some pears, how many pears are there?",  # the numbers are lost
}


class Writer(BaseHTTPRequestHandler):
    """An LLM: one paraphrase is good, one row's solution tells its answer, and each first answer is no JSON."""

    asked, keys = [], set()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = body["messages"][0]["content"]
        prompt = content if isinstance(content, str) else content[-1]["text"]
        self.keys.add(self.headers["Authorization"])
        text = self.reply(prompt)
        first = prompt not in self.asked
        self.asked.append(prompt)
        answer = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})
        self.send_response(500 if first else 200)
        self.end_headers()
        self.wfile.write(b"<html>" if first else answer.encode())

    def reply(self, prompt):
        question = re.search(r"Question:\n(.*)", prompt)[1]
        if "Right answer" not in prompt:
            return f"<think>Hm.</think>{GOOD[question]}"
        early = "It is 11." if "pears" in question else "Take all apples."
        return f"1. {early}\n2. Count them.\n3. Done.\nAnswer: {ANSWERS[question]}"

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("VARIANTS_API_KEY", "secret")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Writer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def test_texts_that_are_no_use_are_left_out_and_counted(tmp_path, endpoint, capsys):
    rows = [{"prompt": [{"role": "user", "content": asked}], "answer": answer} for asked, answer in ANSWERS.items()]
    Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
    out = tmp_path / "out.parquet"
    asking = ["--endpoint", endpoint, "--model", "writer/72B"]
    main([str(tmp_path / "rows.parquet"), str(out), "--kinds", "text,hint-1,hint-2,drawn", *asking])
    assert capsys.readouterr().out.splitlines() == [
        "text: 1 kept; left out: lost a number 1",
        "hint-1: 1 kept; left out: tells the answer 1",
        "hint-2: 1 kept; left out: tells the answer 1",
        "drawn: 0 kept; left out: no picture 2",
    ]
    built = with_known_originals(Dataset.from_parquet(str(out)), "of")
    assert built["kind"] == ["original", "text", "hint-1", "hint-2", "original"]
    assert built["of"][:4] == [built["id"][0]] * 4
    assert built["answer"] == ["7"] * 4 + ["11"]
    assert built["prompt"][1][0]["content"] == GOOD["How many apples are 3 and 4?"]
    assert built["prompt"][3][0]["content"].endswith("are:\n1. Take all apples.\n2. Count them.\n3. Done.")
    assert read_variants(built, "of")[0].tolist() == [0, 0, 0, 0, 4]
    assert Writer.keys == {"Bearer secret"}
    assert "secret" not in out.read_bytes().decode(errors="replace")
    assert len(Writer.asked) == 8  # two texts and two solutions, each asked for again after a failure


def test_pictures_are_the_same_bytes_for_a_seed_and_all_kinds_are_in_the_law(tmp_path):
    kinds = [f"{name}-2" for name in IMAGE_KINDS] + ["drawn"]
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for seed, file in zip((0, 0, 1), files, strict=True):
        main(["testbed", str(file), "--limit", "4", "--kinds", ",".join(kinds), "--seed", str(seed)])
    first, second, other = (file.read_bytes() for file in files)
    assert first == second != other
    built = Dataset.from_parquet(str(files[0]))
    originals = load_rows(read_options(["testbed", "-", "--limit", "4", "--kinds", "drawn"]))
    of, names = read_variants(built, "of")
    for row, original in zip(np.unique(of).tolist(), originals, strict=True):
        assert built[row]["images"][0].tobytes() == original["images"][0].tobytes()
    assert {*names} == {"original", *kinds}
    every = ("original", *kinds)
    kind_offsets(VariantRows(of, np.array([every.index(name) for name in names]), every))
    drawn = next(row for row in built if row["kind"] == "drawn")
    assert drawn["images"][0].height > built[0]["images"][0].height
    assert drawn["prompt"] != built[0]["prompt"]


def test_what_was_built_is_no_data_set_of_originals(tmp_path):
    rows = [{"prompt": "What is it?", "answer": "3", "solution": "One. Two. Three."}]
    Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
    out = str(tmp_path / "out.parquet")
    main([str(tmp_path / "rows.parquet"), out, "--kinds", "hint-1"])
    with pytest.raises(SystemExit, match="of and kind"):
        main([out, str(tmp_path / "again.parquet"), "--kinds", "hint-1"])
