"""`RowDecoder` with real data sets and files: the rows of `__getitems__`, decoded elsewhere, once, and ahead."""

import gc
import threading
import time
import weakref
from concurrent.futures import wait

import datasets
import pytest
from datasets import Dataset, Features, Image, List, Value, concatenate_datasets
from datasets.features import Json
from datasets.table import Table
from PIL import Image as Pictures

from tests.support.pictures import FORMATS, MODES, file_of, gradient, turned
from tests.support.refusals import refused
from tests.support.rows import ids, numbered_rows, picture
from trl_vade.data import decoding
from trl_vade.data.decoding import THREADS, RowDecoder
from trl_vade.errors import ImageDecodeError


def rows_of(column, feature, values, **more):
    """A question a row, and columns of a feature and its values each."""
    columns = {"prompt": (Value("string"), [f"question {i}" for i in range(len(values))]), column: (feature, values)}
    columns |= more
    features = Features({name: kind for name, (kind, _) in columns.items()})
    return Dataset.from_dict({name: each for name, (_, each) in columns.items()}, features=features)


CONTENT = List({"type": Value("string"), "text": Value("string"), "image": Image()})
MESSAGES = List({"role": Value("string"), "content": CONTENT})
PAIRS = [{"left": MODES[0], "right": MODES[1]}, {"left": None, "right": MODES[2]}]


def parts(*images):
    content = [{"type": "image", "text": None, "image": image} for image in images]
    return [{"role": "user", "content": [*content, {"type": "text", "text": "What?", "image": None}]}]


DATASETS = {
    "one image a row, or none": rows_of("image", Image(), [*MODES, None, *FORMATS]),
    "turned by its EXIF data": rows_of("image", Image(), [turned(), MODES[0]]),
    "in a mode of the feature's": rows_of("image", Image(mode="L"), [*MODES, turned()]),
    "lists": rows_of("images", List(Image()), [[], None, [MODES[0]], MODES, [None, turned()], [None]]),
    "lists of lists": rows_of("images", List(List(Image())), [[MODES[:2], []], None, [None, MODES[2:]]]),
    "in the prompt's content": rows_of("messages", MESSAGES, [parts(), parts(turned()), parts(*MODES), []]),
    "in a dictionary": rows_of("pair", {"left": Image(), "right": Image(mode="L")}, [*PAIRS, None]),
    "beside JSON": rows_of("image", Image(), MODES, tools=(List(Json()), [[{"a": 1}, [None, "b"]]] * len(MODES))),
    "two columns": rows_of("image", Image(), MODES, mask=(Image(mode="1"), MODES[::-1])),
}


def watch(monkeypatch, before=lambda: None, after=lambda image: None):
    """Call `before` and `after` at each image that is decoded."""
    decode = datasets.Image.decode_example

    def watched(self, *arguments, **named):
        before()
        image = decode(self, *arguments, **named)
        after(image)
        return image

    monkeypatch.setattr(datasets.Image, "decode_example", watched)


@pytest.fixture
def threads(monkeypatch):
    """The names of the threads that decoded something; a list that goes on growing."""
    names = []
    watch(monkeypatch, lambda: names.append(threading.current_thread().name))
    return names


def threads_end():
    """Whether the threads of the decoders end by themselves, soon."""
    for _ in range(600):
        if not any(thread.name.startswith("trl_vade-decode") for thread in threading.enumerate()):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("name", DATASETS)
def test_the_rows_are_those_of_getitems_and_decoded_in_threads(name, threads):
    dataset = DATASETS[name]
    order = [*reversed(range(len(dataset)))]
    expected = dataset.__getitems__(order)
    threads.clear()
    for ahead in (False, True):
        decoder = RowDecoder(dataset)
        if ahead:
            decoder.prefetch(order)
        rows = decoder.load(order)
        assert rows == expected  # two pictures are equal if their class, mode, size, palette, metadata and pixels are
        assert [list(row) for row in rows] == [list(row) for row in expected]
    assert {name.startswith("trl_vade-decode") for name in threads} == {True}


def test_rows_that_were_selected_shuffled_or_joined_and_files_outside_the_table_are_found(tmp_path):
    whole = numbered_rows(9, image=picture)
    (tmp_path / "a.jpg").write_bytes(turned()["bytes"])
    files = rows_of("images", List(Image()), [[str(tmp_path / "a.jpg")]] * 3)
    for dataset in (whole.shuffle(seed=1), whole.select([7, 2, 5]), concatenate_datasets([whole, whole]), files):
        assert RowDecoder(dataset).load([1, len(dataset) - 1, 0]) == dataset.__getitems__([1, len(dataset) - 1, 0])


def test_shared_pictures_are_decoded_once_and_all_else_is_each_ones_own(decoded_images):
    rows = numbered_rows(4, images=lambda i: [picture(i // 2), picture(9)], board=lambda i: [i])
    rows = rows.cast_column("images", List(Image()))
    decoder = RowDecoder(rows)
    decoder.shares_pictures = True
    one, again, other, last = decoder.load([0, 0, 1, 3])
    assert [one, other, last] == rows.__getitems__([0, 1, 3])
    assert one["images"][0] is again["images"][0] is other["images"][0]  # rows 0 and 1 store the same image
    assert one["images"][1] is last["images"][1]
    one["board"].append(1)
    one["images"].pop()
    assert (again["board"], len(again["images"])) == ([0], 2)
    decoded_images.clear()
    decoder.load([2, 3])
    assert 9 in decoded_images  # nothing is kept from one batch to the next
    decoder.shares_pictures = False
    decoded_images.clear()
    one, again = decoder.load([2, 2])
    assert sorted(decoded_images) == [1, 9]  # datasets decodes the first image of a list twice
    one["images"][0].putpixel((0, 0), (7, 7, 7))
    assert again["images"][0].getpixel((0, 0))[0] == 1


class Clip:
    """What a transform may make, and only it can make again."""


def test_a_row_that_cannot_be_copied_is_loaded_again_for_each_time_that_it_is_asked_for():
    dataset = numbered_rows(4).with_transform(lambda batch: batch | {"clip": [Clip() for _ in batch["id"]]})
    rows = RowDecoder(dataset).load([3, 1, 3, 3])
    assert ids(rows) == ["row-3", "row-1", "row-3", "row-3"]
    assert len({id(row["clip"]) for row in rows}) == 4
    assert {type(row["clip"]) for row in rows} == {Clip}


def test_an_animated_picture_is_decoded_again_so_that_each_has_its_frames():
    film = file_of(gradient(), "GIF", save_all=True, append_images=[gradient().rotate(180)])
    for shares, rows in ((False, [0, 0]), (True, [0, 1])):
        decoder = RowDecoder(rows_of("image", Image(), [film, film]))
        decoder.shares_pictures = shares
        one, other = decoder.load(rows)
        one["image"].seek(1)
        assert (other["image"].tell(), one["image"] == other["image"]) == (0, False)
        other["image"].seek(1)
        assert one["image"] == other["image"]


def test_in_a_format_of_arrays_each_time_has_its_own():
    for kind in ("numpy", "torch"):
        dataset = numbered_rows(4, board=lambda i: [i, i, i]).with_format(kind)
        one, other, third = RowDecoder(dataset).load([2, 2, 1])
        one["board"][0] = 9
        assert (other["board"].tolist(), third["board"].tolist()) == ([2, 2, 2], [1, 1, 1])


LEFT_ALONE = {
    "no images": numbered_rows(4),
    "images that nobody asked to decode": numbered_rows(4, image=picture).cast_column("image", Image(decode=False)),
    "a transform": numbered_rows(4, image=picture).with_transform(lambda batch: batch | {"n": [len(batch["id"])] * 2}),
    "a format": numbered_rows(4, image=picture).with_format("numpy", columns=["id"]),
    "some of the columns": numbered_rows(4, image=picture).with_format(None, columns=["id"]),
    "another kind of media": numbered_rows(4, image=picture).add_column("clip", [None] * 4, feature=datasets.Video()),
}


def test_it_is_left_to_the_data_set_and_the_calling_thread(threads):
    for name, dataset in LEFT_ALONE.items():
        threads.clear()
        decoder = RowDecoder(dataset)
        assert not decoder.in_threads, name
        decoder.prefetch([2, 0])
        assert threads == []
        assert decoder.load([2, 0]) == dataset.__getitems__([2, 0])
        assert set(threads) <= {threading.current_thread().name}


def test_two_rows_are_decoded_at_the_same_time(monkeypatch):
    both = threading.Barrier(2)
    watch(monkeypatch, lambda: both.wait(60))  # one after the other, the first would wait for ever
    assert ids(RowDecoder(numbered_rows(4, image=picture)).load([0, 1, 2, 3])) == [f"row-{i}" for i in range(4)]


def test_what_was_foreseen_is_not_decoded_again_and_the_rest_is_made_good(decoded_images):
    decoder = RowDecoder(numbered_rows(9, image=picture))
    for _ in range(2):
        decoder.prefetch([1, 2, 3])
    rows = decoder.load([3, 7, 1])
    assert ids(rows) == ["row-3", "row-7", "row-1"]
    assert [row["image"].getpixel((0, 0))[0] for row in rows] == [3, 7, 1]
    assert sorted(decoded_images) in ([1, 3, 7], [1, 2, 3, 7])


def test_no_image_is_kept_after_its_rows_were_handed_out_or_given_up(monkeypatch):
    alive = weakref.WeakSet()
    watch(monkeypatch, after=alive.add)
    monkeypatch.setattr(Pictures.Image, "__hash__", object.__hash__)  # as a WeakSet needs
    decoder = RowDecoder(numbered_rows(9, image=picture))
    decoder.prefetch([0, 1, 2])
    rows = decoder.load([1, 4])
    assert threads_end()
    gc.collect()
    assert sorted(image.getpixel((0, 0))[0] for image in alive) == [1, 4]
    del rows
    decoder.prefetch([5, 6])
    decoder.forget()
    assert threads_end()
    gc.collect()
    assert len(alive) == 0


def test_to_begin_does_not_wait_and_what_is_given_up_is_not_begun_any_more(decoded_images, monkeypatch):
    gate = threading.Event()
    watch(monkeypatch, lambda: gate.wait(60))
    decoder = RowDecoder(numbered_rows(40, image=picture))
    decoder.prefetch([*range(40)])
    assert decoded_images == []
    monkeypatch.setattr(decoding, "wait", lambda tasks: (gate.set(), wait(tasks)))
    decoder.forget()
    assert len(decoded_images) <= THREADS
    assert threads_end()
    assert ids(decoder.load([3])) == ["row-3"]


def test_nothing_but_the_rows_that_were_chosen_is_touched_however_many_there_are(monkeypatch):
    """One row of the table for each, and one copy of the data set at all: it has a list of the table's parts."""
    rows = numbered_rows(300, image=picture).shuffle(seed=0)
    copies, copy, read, slice_of = [], Dataset.with_format, [], Table.fast_slice

    def reading(table, offset=0, length=None):
        if "image" in table.column_names:  # the table itself, and not its order
            read.append(length)
        return slice_of(table, offset, length)

    monkeypatch.setattr(Dataset, "with_format", lambda rows, kind: copies.append(kind) or copy(rows, kind))
    monkeypatch.setattr(Table, "fast_slice", reading)
    decoder = RowDecoder(rows)
    for first in range(0, 9, 3):
        decoder.prefetch([first, 299])
        decoder.load([first, first + 1, 299])
    assert threads_end()
    assert (copies, read) == (["arrow"], [1] * 9)


def test_a_damaged_image_is_an_error_that_names_its_row_when_this_is_loaded_and_not_before():
    for content, path, error in (
        (b"not a picture", None, "UnidentifiedImageError"),
        (file_of(gradient(), "JPEG")["bytes"][:400], None, "OSError"),
        (None, "/nowhere/a.png", "FileNotFoundError"),
    ):
        values = [file_of(picture(i)) for i in range(6)]
        values[4] = {"bytes": content, "path": path}
        names = [f"photo-{i}" for i in range(6)]
        decoder = RowDecoder(rows_of("image", Image(), values, id=(Value("string"), names)))
        decoder.prefetch([4, 1])
        assert len(decoder.load([1, 2])) == 2
        decoder.prefetch([4])
        with refused(ImageDecodeError, ["Row 4", "'photo-4'", "column 'image'", error]) as caught:
            decoder.load([1, 4, 2])
        assert isinstance(caught.value, OSError)
        assert threads_end()


def test_the_row_whose_transform_fails_is_named():
    def transform(batch):
        if "row-2" in batch["id"]:
            raise KeyError("page")
        return batch

    with pytest.raises(KeyError) as caught:
        RowDecoder(numbered_rows(4).with_transform(transform)).load([3, 2, 0])
    assert "row 2 " in caught.value.__notes__[0]
