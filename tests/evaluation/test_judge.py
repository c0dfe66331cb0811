import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loopback_judge import LoopbackJudge, answer_of
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, JudgeError
from trl_vade.evaluation import judge as module
from trl_vade.evaluation.judge import Judge, names_no_answer, verdict

QWEN = "Qwen/Qwen2.5-72B-Instruct"
SECRET = "sk-secret-4711"
BINARY = "# Input\nGround Truth Answer:\n```\n{}\n```\nModel Prediction:\n```\n{}\n```\n\n# Evaluation Rules\n- one"


@pytest.fixture(autouse=True)
def no_keys_and_no_proxies(monkeypatch):
    names = ("JUDGE_API_KEY", "OPENAI_API_KEY", *(f"{kind}_proxy" for kind in ("http", "https", "all", "no")))
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def unusable(judge, *names):
    """The probe of a stand-in refuses it with a message that names the `names`."""
    with refused(
        JudgeError, [judge.url, judge.model, *names], ["vllm serve", "--judge_url", "--judge_model"]
    ) as raised:
        Judge.of(judge.url, judge.model).probe()
    return str(raised.value)


# ------------------------------------------------------------------------------------------------ where the judge is


def test_an_address_is_brought_into_the_form_that_all_of_lmms_eval_takes():
    for given_url, url in {
        "http://127.0.0.1:8000": "http://127.0.0.1:8000/v1",
        "http://127.0.0.1:8000/v1/": "http://127.0.0.1:8000/v1",
        " https://judge.example/v1/chat/completions/\n": "https://judge.example/v1",
        "https://judge.example/chat/completions": "https://judge.example/v1",
        "https://judge.example/team/v1": "https://judge.example/team/v1",
        "http://[::1]:8000": "http://[::1]:8000/v1",
    }.items():
        assert Judge.of(given_url, f" {QWEN} ") == Judge.of(url, QWEN) == Judge(url, QWEN)


def test_what_is_no_address_or_no_name_is_refused_and_a_secret_not_repeated():
    secrets = [
        f"http://me:{SECRET}@host/v1",
        f"{SECRET}@host",
        f"http://host/v1?key={SECRET}",
        f"http://host#{SECRET}",
    ]
    none = ["", "localhost:8000/v1", "ftp://judge", "http://", "http://[::1", "http://a b", "http://h:x", None]
    for url in (*none, *secrets):
        with refused(ConfigurationError, ["--judge_url"]) as caught:
            Judge.of(url, QWEN)
        assert SECRET not in str(caught.value)
    for model in ("", "  ", None):
        with refused(ConfigurationError, ["--judge_model"]):
            Judge.of("http://host", model)


def test_lmms_eval_gets_the_variables_that_it_reads():
    judge = Judge.of("http://host:8000", QWEN)
    expected = {"API_TYPE": "openai", "OPENAI_API_URL": "http://host:8000/v1", "MODEL_VERSION": QWEN}
    assert judge.environment({"HOME": "/"}) == expected | {"OPENAI_API_KEY": "EMPTY"}
    assert judge.environment({"OPENAI_API_KEY": "a"})["OPENAI_API_KEY"] == "EMPTY"  # that is for another server
    assert judge.environment({"OPENAI_API_KEY": "a", "JUDGE_API_KEY": "b\n"})["OPENAI_API_KEY"] == "b"


def test_lmms_eval_asks_a_judge_on_this_machine_without_a_proxy():
    proxy = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "a.example"}
    variables = Judge.of("http://127.0.0.1:8000", QWEN).environment(proxy)
    assert variables["NO_PROXY"] == variables["no_proxy"] == "a.example,127.0.0.1"
    assert "NO_PROXY" not in Judge.of("http://judge.example", QWEN).environment(proxy)


def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", f"{SECRET} \n more")
    with refused(ConfigurationError, ["JUDGE_API_KEY"]) as caught:
        Judge.of("http://127.0.0.1:9", QWEN).probe()
    assert SECRET not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- the probe


def test_a_good_judge_passes_with_three_questions_and_gets_no_other_servers_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with LoopbackJudge() as judge:
        Judge.of(judge.url, judge.model).probe()
    assert judge.calls == 3
    assert judge.keys == {"EMPTY"}


def test_a_judge_on_this_machine_is_asked_without_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with LoopbackJudge() as judge:
        Judge.of(judge.url, judge.model).probe()
        Judge.of(judge.url.replace("127.0.0.1", "localhost"), judge.model).probe()


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("empty", ["right answer", "empty"]),
        ("nonsense", ["'Perhaps a triangle, perhaps not.'", "1", "0"]),
        ("right", ["wrong answer", "'1'", "0"]),
        ("wrong", ["right answer", "'0'", "1"]),
        ("status500", ["500", "EngineCore encountered an issue"]),
        ("dead", ["GET /models", "Server disconnected"]),
        ("wrong model", ["'another/model'"]),
        ("html", ["JSON", "<html>", "OpenAI"]),
        ("no choices", ["chat completion"]),
    ],
)
def test_what_is_no_good_judge_is_refused_by_its_fault(mode, names):
    with LoopbackJudge(mode) as judge:
        unusable(judge, *names)


@pytest.mark.parametrize(("answers", "asked"), [(0, "right answer"), (1, "wrong answer"), (2, "81")])
def test_a_judge_that_dies_between_two_answers_is_found_dead(answers, asked):
    with LoopbackJudge() as judge:
        judge.fail_after(answers, "empty")
        unusable(judge, asked)


def test_a_judge_that_extracts_another_answer_is_refused():
    with LoopbackJudge() as judge:
        judge.words = "The answer is 18.81"
        judge.fail_after(2, "nonsense")
        unusable(judge, "'The answer is 18.81'")


def test_a_port_where_nobody_listens_is_named():
    with LoopbackJudge() as judge:
        pass
    unusable(judge, "Connection refused")


def test_a_judge_that_does_not_answer_in_time_is_refused(monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", module.httpx.Timeout(0.2, connect=5.0))
    with LoopbackJudge("slow") as judge:
        unusable(judge, "5 s", "0.2 s")


def test_the_key_is_sent_and_nowhere_to_be_read(monkeypatch, capfd):
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    with LoopbackJudge(key=SECRET) as judge:
        Judge.of(judge.url, judge.model).probe()
        assert judge.keys == {SECRET}
        judge.key = "another"
        message = unusable(
            judge, "401", "Not a key of this server: ***", "JUDGE_API_KEY"
        )  # the server repeats the key
        said = [message, repr(Judge.of(judge.url, judge.model)), *capfd.readouterr()]
    assert not any(SECRET in text for text in said)


# ----------------------------------------------------------------------------------------------------- the verdict

READ = {
    1: [
        *("1", " 1\n", "[1]", "**1**", "`1`", "1.", "(1).", '"1."', "$1$", "Score: 1", "**Score:** 1", "Answer: [1]"),
        *(
            "Final answer: 1",
            "Judgement: 1",
            "Judgment = 1",
            "```\n1\n```",
            "1\n\nBecause both are 12.",
            "yes",
            "Yes.",
        ),
        *("Correct", "The prediction is 12.\n\nVerdict: 1", "<think>12?</think>\n1", "1\n1"),
    ],
    0: ["0", "[0].", "Score: 0", "no", "NO", "Incorrect.", "0\n\nThe prediction is 1.", "Both differ.\nScore: 0"],
    None: [
        *("", " \n ", "12", "10", "The prediction 12 is wrong", "1 or 0", "0/1", "-1", ".1", "0.1", "1.0", "1%", "01"),
        *("1\n0", "0\nNo, wait.\nyes", "Perhaps", "The answer is 1", "Not correct", "Model prediction: 1", "Score:"),
        *("x1", "1 0", "yes no", "The score is between 0\nand\n1 or 2"),
    ],
}


def test_a_verdict_is_read_only_where_it_stands_alone():
    wrong = {text: verdict(text) for found, texts in READ.items() for text in texts if verdict(text) != found}
    assert wrong == {}


@given(st.text())
def test_any_text_is_a_verdict_or_none(text):
    found = verdict(text)
    assert found in (0, 1, None)
    if not re.search("0|1|yes|no|correct", text.lower()):
        assert found is None


@given(
    st.sampled_from(["1", "0"]),
    st.sampled_from(["", "Score: ", "Verdict = ", "**Answer:** "]),
    st.sampled_from(["", "*", "`", '"']),
    st.text("abcxyz 23456789.,\n"),
)
def test_a_verdict_on_the_first_or_on_the_last_line_is_read_whatever_else_is_said(word, lead, mark, speech):
    line = f"{lead}{mark}{word}{mark}"
    assert verdict(f"{line}\n{speech}") == verdict(f"{speech}\n{line}") == int(word)


NO_ANSWER = [
    *("None", "null.", "N/A", "No answer", "No final answer is given in the response.", "The answer is not stated."),
    *("The response does not provide a final answer.", "It is cut off before an answer."),
    *("The response doesn\u2019t reach a conclusion.", "The final answer cannot be determined."),
    "It ends without giving a value.",
]
AN_ANSWER = [
    *("No", "12", "(B)", "No, the value is not greater.", "The option is not prime", "Not equal", "nothing"),
    *("no the value is smaller", "I cannot provide an answer.", "The service is overloaded and gives no answer."),
]


def test_a_judge_that_finds_no_answer_is_told_from_one_that_speaks_of_itself_and_from_an_answer():
    assert [text for text in NO_ANSWER if not names_no_answer(text)] == []
    assert [text for text in AN_ANSWER if names_no_answer(text)] == []


# ------------------------------------------------------------------------------------ the stand-in's own judgement


def test_the_stand_in_truly_judges_lmms_evals_question():
    right = [
        ("12", "so 7 + 5 = 12.0."),
        ("1200", "It is 1,200."),
        ("B", "A is too small: (B)"),
        ("a circle", "A Circle."),
    ]
    wrong = [("12", "not 12, but 13"), ("B", "(C)"), ("12", "")]
    assert {answer_of(BINARY.format(*pair)) for pair in right} == {"1"}
    assert {answer_of(BINARY.format(*pair)) for pair in wrong} == {"0"}


def test_the_stand_in_truly_extracts_by_mathvistas_question():
    ask = "Please read this.\n\nExtracted answer: B\n\n{}\n\n{}\n\nExtracted answer: ".format
    assert answer_of(ask("Hint: an integer, e.g., 1, 2, 3.\nQuestion: How many?", "First 3.\n\nThen 4.")) == "4"
    choices = "Hint: the correct option letter, e.g., A, B.\nQuestion: Which?\nChoices:\n(A) 3\n(B) 5"
    assert answer_of(ask(choices, "The answer is (A) 3.")) == "A"
