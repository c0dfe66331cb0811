"""The loading benchmark: its photographs, and a run of it cut short. Its timings are reported and never tested."""

import json
import statistics
import sys
from io import BytesIO

from PIL import Image

from eval.benchmarks import loading as benchmark


def test_the_files_are_photographs_of_the_size_asked_for_and_all_different():
    files = list(benchmark.photographs(6, 0.2))
    images = [Image.open(BytesIO(file)) for file in files]
    assert {image.format for image in images} == {"JPEG"}
    assert all(abs(image.width * image.height / 2e5 - 1) < 0.01 for image in images)
    assert len(set(files)) == 6
    assert 1.5 < statistics.median(map(len, files)) * 8 / 2e5 < 4  # bits a pixel, as photographs have
    assert files == list(benchmark.photographs(6, 0.2))


def test_a_short_run_measures_every_arm_and_decodes_what_each_of_them_says(monkeypatch, tmp_path, capsys):
    import datasets

    from trl_vade.data import decoding

    decode, count, before = datasets.Image.decode_example, [], decoding.THREADS
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *a, **k: (count.append(1), decode(*a, **k))[1])
    file = tmp_path / "figures.json"
    flags = ["--rows", "8", "--megapixels", "0.01", "--num_generations", "4", "--threads", "1", "3", "--steps", "0"]
    monkeypatch.setattr(sys, "argv", ["loading.py", *flags, "--repeats", "2", "--output", str(file)])
    benchmark.main()
    figures = json.loads(file.read_text())
    assert figures.keys() == {"stock", "getitems", "1 threads", "3 threads", "to begin", "after 0 s"}
    assert all(len(values) == 2 and min(values) > 0 for values in figures.values())
    assert "8 JPEG files" in capsys.readouterr().out
    assert before == decoding.THREADS
    # One image to see its size and 8 to warm up; in each repeat stock 2 rows x 4, getitems 8, 8 for each pool and 8
    # for the choice. (Without the threads the first image of a list counts twice: datasets 5.2.)
    assert len(count) == 2 + 8 + 2 * (16 + 16 + 8 + 8 + 8)
