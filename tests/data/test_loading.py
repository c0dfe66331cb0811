"""`RowLoader` with real data sets and a real Accelerator: which rows, on which process, and how often decoded."""

import numpy as np
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows import ids, numbered_rows, picture, process
from trl_vade.data.loading import RowLoader, with_image_lists


def load(dataset, sample_index, *, num_generations=4, accelerator=None):
    accelerator = accelerator or Accelerator(cpu=True)
    return RowLoader(dataset, num_generations=num_generations, accelerator=accelerator).load(np.array(sample_index))


def test_the_items_of_a_group_share_no_list_no_dictionary_and_no_picture():
    rows = load(numbered_rows(6, image=picture, board=lambda i: [i], info=lambda i: {"a": [i]}), [5, 2])
    rows[0]["answer"] = "mine"
    assert all("answer" not in row for row in rows[1:])
    rows[0]["board"].pop()
    rows[0]["info"]["a"].append(1)
    rows[0]["image"].putpixel((0, 0), (99, 0, 0))
    assert [(row["board"], row["info"]["a"]) for row in rows[1:]] == [([5], [5])] * 3 + [([2], [2])] * 4
    assert [row["image"].getpixel((0, 0))[0] for row in rows[1:]] == [5] * 3 + [2] * 4


@given(st.integers(1, 6), st.integers(1, 8), st.data())
def test_each_process_loads_the_rows_of_its_own_slice_once_and_no_others(num_groups, num_generations, data):
    """Whatever the numbers, as long as the completions divide among the processes."""
    num_rows = num_groups * num_generations
    world = data.draw(st.sampled_from([number for number in range(1, num_rows + 1) if num_rows % number == 0]))
    loaded = []

    def transform(batch):
        loaded.extend(batch["id"])
        return batch

    dataset = numbered_rows(6).with_transform(transform)
    chosen = data.draw(st.permutations(range(6)))[:num_groups]
    whole, share = [f"row-{row}" for row in chosen for _ in range(num_generations)], num_rows // world
    for index in range(world):
        loaded.clear()
        rows = load(dataset, chosen, num_generations=num_generations, accelerator=process(index, world))
        assert ids(rows) == whole[index * share : (index + 1) * share]
        assert loaded == list(dict.fromkeys(ids(rows)))


def test_each_process_begins_with_the_rows_of_its_own_slice_and_decodes_no_others(decoded_images):
    dataset, chosen = numbered_rows(6, photo=picture), np.array([5, 0, 3, 1, 2])
    for index, mine in enumerate([{5, 0, 3}, {3, 1, 2}]):
        loader = RowLoader(dataset, num_generations=4, accelerator=process(index, 2))
        decoded_images.clear()
        loader.prefetch(chosen)
        assert {int(name[-1]) for name in ids(loader.load(chosen))} == mine
        assert sorted(decoded_images) == sorted(mine)


def test_one_process_alone_says_whether_its_batch_has_images_and_leaves_the_prompts_alone():
    dataset = numbered_rows(6, image=lambda i: picture(i) if i < 3 else None)
    loader = RowLoader(dataset, num_generations=2, accelerator=Accelerator(cpu=True))
    for chosen, answer in (([0, 1], True), ([3, 4], False), ([2, 5], True)):
        rows = loader.load(np.array(chosen))
        assert loader.images_on_all_processes is answer
        assert [row["prompt"] for row in rows[::2]] == [f"question {number}" for number in chosen]


def test_of_a_batch_that_lacks_an_image_each_row_has_a_list_and_another_is_left_as_it_is():
    for rows, lists in (
        ([{"images": ["a", "b"]}, {"images": None}, {"images": []}], [["a", "b"], [], []]),
        ([{"images": None}, {"images": None}], [[], []]),
        ([{"image": "a"}, {"image": None}], [["a"], []]),
        ([{"image": None}, {"image": None}], [[], []]),
    ):
        before = [dict(row) for row in rows]
        assert [row["images"] for row in with_image_lists(rows)] == lists
        assert rows == before  # the user's rows are not written into
    for whole in ([{"image": "a"}, {"image": "b"}], [{"prompt": "none"}], [{"images": ["a"]}, {"images": ["b"]}]):
        assert with_image_lists(whole) == whole
