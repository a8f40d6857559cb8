"""Answers in the page, by the engine of the bundle that Python itself came from."""

from pyscript import document, when

import typedecide.browser
from typedecide import Choice, Noul

QUESTIONS = {
    "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
    "refund": Noul("Does the customer want money back?"),
}

text, button, status, answers = (
    document.getElementById(name) for name in ("text", "decide", "status", "answers")
)


def show(id, answer):
    """A row of the table, as soon as its answer is there."""
    row = answers.insertRow()
    best = max(answer.probabilities)
    for cell in (id, answer.choice, f"{best:.4f}"):
        row.insertCell().textContent = cell


@when("click", "#decide")
async def decide(event):
    button.disabled = True
    answers.replaceChildren()
    async for id, one in engine.stream(text.value, QUESTIONS):
        show(id, one.answer)
    button.disabled = False


status.textContent = "The model is loading …"
engine = await typedecide.browser.connect()
status.textContent = engine.info["model"]["name"]
button.disabled = False
