"""What a judge extracted from a response: an answer, or something that the judge said of itself.

How a samples file is read, and refused, is in test_eval_runs.py.
"""

import pytest

from trl_vade.evaluation.results.samples import foreign_extractions

OVERLOADED = "The service is overloaded, please try again later."
RESPONSE = "The legend has four bars.\n\nSo the *answer* is: the longest bar, which is 12 cm."
CHOICES = ["less than one half of it", "more than one half of it"]


def sample(extraction, response=RESPONSE, choices=CHOICES):
    """As `scoring.mathvista` gives it, of a multiple choice."""
    about = {"extraction": extraction, "choices": choices, "llm_as_judge_eval": 0.0}
    return {"doc_id": 0, "target": "12", "filtered_resps": [response], **about}


@pytest.mark.parametrize(
    "extraction",
    [
        *("12", "12.5", "-3", "1,200", "B", "(B)", "3/11", "3 / 11", "5 cm^2", "", None),
        *("[1, 2, 3, 4, 5]", "x^2 + 3x - 4 = 0 or y < 2 - 5"),
        "more than one half of it",  # a choice
        "**Less than one half of it.**",
        "the longest bar, which is 12 cm",  # of the response
        "four bars. So the answer is",
        "The Answer is the longest bar",  # whatever the marks between the words
    ],
)
def test_an_answer_is_not_foreign(extraction):
    assert foreign_extractions([sample(extraction)]) == []


@pytest.mark.parametrize(
    "extraction",
    [
        *("The response does not provide a final answer.", "The response does not contain an answer"),
        *("No final answer was given in the response.", "The solution is cut off before a value is found"),
        *("The answer is not stated in the response", "The model\u2019s response doesn\u2019t reach a conclusion."),
    ],
)
def test_an_honest_judge_that_finds_no_answer_in_a_response_is_no_failure_of_the_judge(extraction):
    assert foreign_extractions([sample(extraction)]) == []


@pytest.mark.parametrize("choices", [CHOICES, None, [], 7])
def test_what_a_judge_says_of_itself_is_foreign(choices):
    found = foreign_extractions([sample("12"), sample(OVERLOADED, choices=choices)])
    assert found == [OVERLOADED]


@pytest.mark.parametrize(
    "extraction",
    ["I cannot help with this request.", "Sorry, I cannot give an answer", "less than one third of it"],
)
def test_what_stands_neither_in_the_response_nor_among_the_choices_is_foreign(extraction):
    assert len(foreign_extractions([sample(extraction)])) == 1


def test_all_of_them_are_found():
    assert len(foreign_extractions([sample(OVERLOADED)] * 3 + [sample("4")])) == 3
