"""`cli.variants.replies`: no reply is lost, however the process ended."""

import json

from trl_vade.cli.variants.replies import Replies


def test_a_torn_last_line_is_dropped_and_the_next_reply_is_whole(tmp_path):
    path = tmp_path / "replies.jsonl"
    Replies(path).keep("a", "one\ntwo")
    with path.open("a") as file:
        file.write('{"key": "b", "rep')
    again = Replies(path)
    assert (again.get("a"), again.get("b")) == ("one\ntwo", None)
    again.keep("c", "three")
    assert Replies(path).get("c") == "three"
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "c"]


def test_a_damaged_line_is_asked_again_and_hides_no_other(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_bytes(
        b'{"key": "a", "reply": "one"}\n\xff\x00\n[1]\n{"key": "b"}\n{"key": "c", "reply": "\\ud83d two"}\n'
    )
    replies = Replies(path)
    assert [replies.get(key) for key in "abc"] == ["one", None, "\ud83d two"]
