"""The number that stands for a row: always the same one."""

import hashlib
import json
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.data.key_hashing import identity, row_key

LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    *(st.datetimes(), st.decimals()),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)), max_leaves=6
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text().filter(lambda name: name not in ("bytes", "path")), VALUES))
def test_it_is_64_bits_of_the_hash_of_the_row_as_json(row):
    text = json.dumps(identity(row), default=repr, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    assert row_key(row) == int.from_bytes(digest, "little", signed=True)


def test_the_process_loads_nothing_heavy():
    code = (
        "import sys, trl_vade.data.key_hashing; print(*{'torch', 'datasets', 'trl', 'transformers'} & {*sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
