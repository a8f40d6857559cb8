import typedecide.browser
from typedecide import Choice, Noul

engine = await typedecide.browser.connect()
done = await engine.decide(
    "My card was charged twice for order 1182, and nobody answers my mails.",
    {
        "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
        "refund": Noul("Does the customer want money back?"),
    },
)
for id, one in done.answers.items():
    print(id, one.answer.choice, one.answer.probabilities)
