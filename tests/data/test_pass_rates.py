"""A column of pass rates: what is read as what, and what is refused because nothing tells."""

import numpy as np
import pytest
from datasets import Dataset

from trl_vade.data.columns import pass_rates
from trl_vade.errors import ConfigurationError

NAN = float("nan")
READ = {
    "fractions with holes": ([0.0, 0.25, 1.0, None, NAN], "rate", [0.0, 0.25, 1.0, NAN, NAN]),
    "texts": (["0.96875", None, "nan"], "rate", [0.96875, NAN, NAN]),
    "percent": ([0.0, 87.5, 100.0], "rate/100", [0.0, 0.875, 1.0]),
    "successes of 16": ([0, 4, 16], "rate/16", [0.0, 0.25, 1.0]),
    "yes and no": ([True, False, None], "rate", [1.0, 0.0, NAN]),
}
REFUSED = {
    "percent or successes": ([0, 4, 16], "rate", "'column:rate/16'"),
    "percent as fractions": ([0.0, 87.5, 100.0], "rate", "row 1 has 87.5"),
    "more than all": ([0, 17, 16], "rate/16", "row 1 has 17"),
    "below nothing": ([0.5, -1.0], "rate", "row 1 has -1.0"),
    "no number": (["0.5", "hard"], "rate", "row 1 has 'hard'"),
    "text of none": (["0.5", "n/a"], "rate", "row 1 has 'n/a'"),
    "a list": ([[0.5], [1.0]], "rate", "row 0 has [0.5]"),
    "nothing at all": ([None, None], "rate", "0 of 2 rows"),
    "another column": ([0.5, 0.5], "solve_rate", "no column 'solve_rate'"),
}


def test_a_column_is_read_as_fractions_of_what_it_names():
    wrong = {}
    for name, (values, column, expected) in READ.items():
        found = pass_rates(Dataset.from_dict({"rate": values}), column)
        if not np.allclose(found, expected, equal_nan=True):
            wrong[name] = found
    assert wrong == {}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nothing_tells_apart_is_refused_with_the_row(name):
    values, column, said = REFUSED[name]
    with pytest.raises(ConfigurationError) as raised:
        pass_rates(Dataset.from_dict({"rate": values}), column)
    assert said in str(raised.value)
    assert column in str(raised.value)


def test_a_name_with_a_slash_is_that_of_the_column_if_there_is_one():
    rows = Dataset.from_dict({"pass/16": [0.5, 1.0]})
    assert pass_rates(rows, "pass/16").tolist() == [0.5, 1.0]
