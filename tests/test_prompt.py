"""typedecide.prompt: the text of prompts, and the prefix that is computed once."""

from __future__ import annotations

import doctest
import random

import pytest

from tests.test_vectors import stored_encoders
from tests.vector_checks import load
from typedecide import BundleError, InvalidQuestionError, InvalidStateError, PrefixMismatchError, prompt
from typedecide.prompt import Label, Prompt, PromptSpec, suffix_after
from typedecide.questions import Choice, Criterion

SPEC = PromptSpec(
    bos_ids=(9,),
    head="Evidence:\n{state}",
    tail="\nCriterion: {criterion}\nOptions:\n{options}Answer:",
    option="{label}. {option}\n",
    labels=(Label("A", 330), Label("B", 387), Label("C", 340)),
)
TEAM = Choice("Which team?", {"billing": "refunds", "other": ""}).criterion()


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(prompt) == (0, 1)


def test_text() -> None:
    written = Prompt(SPEC)
    assert written.head_text("It is late.") == "Evidence:\nIt is late."
    assert (
        written.tail_text(TEAM)
        == "\nCriterion: Which team?\nOptions:\nA. billing: refunds\nB. other\nAnswer:"
    )
    assert written.label_ids(TEAM) == (330, 387)


def test_braces_in_a_text_stay_text() -> None:
    written = Prompt(SPEC)
    assert written.head_text("{state} {criterion}") == "Evidence:\n{state} {criterion}"
    tail = written.tail_text(Criterion("{options} {state}", ("{option}", "{label} \\1 {criterion}")))
    assert tail == (
        "\nCriterion: {options} {state}\nOptions:\nA. {option}\nB. {label} \\1 {criterion}\nAnswer:"
    )


def test_order_of_options_changes_the_tail_only() -> None:
    written, encoder = Prompt(SPEC), stored_encoders()["plain"]
    reordered = Criterion(TEAM.text, TEAM.options[::-1])
    prefix = written.state_prefix_ids(encoder, "It is late.")
    for criterion in (TEAM, reordered):
        full = written.full_ids(encoder, "It is late.", criterion)
        assert full[: len(prefix)] == prefix
        assert full[len(prefix) :] == written.suffix_ids(encoder, "It is late.", criterion)


def test_the_prefix_is_the_head_without_its_last_token() -> None:
    written, encoder = Prompt(SPEC), stored_encoders()["plain"]
    head = encoder.encode("Evidence:\nIt is late.")
    assert written.state_prefix_ids(encoder, "It is late.") == [9, *head[:-1]]


def test_the_trim_saves_states_whose_last_token_merges_with_the_tail() -> None:
    written, encoder = Prompt(SPEC), stored_encoders()["crossing"]
    rng = random.Random(11)
    needed = 0
    for _ in range(500):
        state = "".join(rng.choices(["\n", " ", "\r\n", ".", "late", "\u3000"], k=rng.randrange(1, 8)))
        full = written.full_ids(encoder, state, TEAM)
        untrimmed = [9, *encoder.encode(written.head_text(state))]
        assert written.state_prefix_ids(encoder, state) + written.suffix_ids(encoder, state, TEAM) == full
        needed += full[: len(untrimmed)] != untrimmed
    assert needed > 50


def test_a_token_that_crosses_further_is_an_error() -> None:
    written, encoder = Prompt(SPEC), stored_encoders()["crossing"]
    assert written.suffix_ids(encoder, "late.", TEAM)
    with pytest.raises(PrefixMismatchError) as caught:
        written.suffix_ids(encoder, "late!.", TEAM)
    prefix = written.state_prefix_ids(encoder, "late!.")
    full = written.full_ids(encoder, "late!.", TEAM)
    position = len(prefix) - 1
    assert caught.value.data == {
        "position": position,
        "prefix_token": prefix[position],
        "full_token": full[position],
    }
    assert prefix[:position] == full[:position] and prefix[position] != full[position]


def test_suffix_after() -> None:
    assert suffix_after([], [1]) == [1]
    for prefix, full, position, tokens in (
        ([1, 2], [1, 3, 4], 1, (2, 3)),
        ([1, 2, 3], [1, 2], 2, (3, None)),
        ([1, 2], [1, 2], 2, (None, None)),
        ([], [], 0, (None, None)),
    ):
        with pytest.raises(PrefixMismatchError) as caught:
            suffix_after(prefix, full)
        assert caught.value.position == position
        assert (caught.value.prefix_token, caught.value.full_token) == tokens


def test_more_options_than_labels() -> None:
    written = Prompt(SPEC)
    assert written.label_ids(Criterion("?", ("a", "b", "c"))) == (330, 387, 340)
    for use in (written.label_ids, written.tail_text):
        with pytest.raises(InvalidQuestionError) as caught:
            use(Criterion("?", ("a", "b", "c", "d")))
        assert caught.value.data == {"value": 4, "loc": ["options"]}


def test_states_that_utf8_cannot_carry() -> None:
    with pytest.raises(InvalidStateError) as caught:
        Prompt(SPEC).head_text("\U0001f600 \udfff")
    assert caught.value.data == {"value": "\udfff", "position": 2}
    with pytest.raises(InvalidStateError) as caught:
        Prompt(SPEC).head_text(b"bytes")  # type: ignore[arg-type]
    assert caught.value.data == {"value": b"bytes"}


def test_manifest() -> None:
    manifest = load("prompt.json")["manifest"]
    spec = PromptSpec.from_manifest(manifest)
    assert spec.bos_ids == (7, 0)
    assert spec.labels[25] == Label("Z", 575)
    with pytest.raises(BundleError) as caught:
        PromptSpec.from_manifest({**manifest, "prompt": {**manifest["prompt"], "tail": "{options}"}})
    assert caught.value.data == {"value": "{options}", "loc": ["prompt", "tail"]}
