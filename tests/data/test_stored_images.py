"""Images in a table of Arrow: which types can hold them, and the files that do."""

import datasets
import pyarrow as pa
import pytest
from datasets import Dataset

from tests.support.rows import numbered_rows, picture
from trl_vade.data.stored_images import image_files, may_hold_images

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.string(), False),
        (pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})), False),
        (pa.map_(pa.string(), pa.int64()), False),
        (pa.binary(), False),
        (IMAGE, True),
        (pa.list_(pa.struct({"content": pa.large_list(pa.struct({"image": IMAGE}))})), True),
        (pa.map_(pa.string(), IMAGE), True),
        (datasets.features.features.Array2DExtensionType((1, 2), "int64"), True),
    ],
    ids=str,
)
def test_a_type_that_can_hold_images_is_known_however_deep_they_are(kind, expected):
    assert may_hold_images(kind) == expected


def test_image_files_inside_lists_and_prompts_are_watched_too(tmp_path):
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for number, file in enumerate(files):
        picture(number).save(file)
    parts = datasets.Features({"type": datasets.Value("string"), "image": datasets.Image()})
    prompt = [{"role": "user", "content": [{"type": "image", "image": str(files[0])}]}]
    columns = {"prompt": [prompt], "images": [[str(files[1]), str(files[2])]]}
    features = {"prompt": [{"role": datasets.Value("string"), "content": [parts]}], "images": [datasets.Image()]}
    rows = Dataset.from_dict(columns, features=datasets.Features(features))
    names = [str(file) for file in files]
    assert [file[0] for file in image_files(rows, ["prompt", "images"])] == names
    assert [file[0] for file in image_files(rows.select([0, 0]).select([1]), ["images"])] == names[1:]
    assert [file[1:] for file in image_files(rows, ["prompt"])] == [
        (files[0].stat().st_size, files[0].stat().st_mtime_ns)
    ]
    held = numbered_rows(3, image=picture)
    assert image_files(held, ["prompt", "image"]) == []
