"""How the tasks of the real data sets are asked: question texts and option names, drawn at random.

Knows labels, not where they come from. Options come in random order (levels of a scale in theirs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from typedecide.questions import Choice, Noul, Question, Score


class Asked(NamedTuple):
    """A question and the name of its true option."""

    question: Question
    gold: str


def shuffled(question: Question, rng: Random) -> Question:
    """A choice with its options in random order; other questions as they are."""
    if not isinstance(question, Choice):
        return question
    options = list(zip(question.names, question.descriptions, strict=True))
    rng.shuffle(options)
    return Choice(question.question, dict(options))


def sentiment(label: str, noun: str, rng: Random) -> Asked:
    """Two-way sentiment of a `noun` (tweet, product review…); `label` is positive or negative."""
    positive = label == "positive"
    if rng.random() < 0.35:
        wanted = rng.random() < 0.5
        question = rng.choice(_POSITIVE if wanted else _NEGATIVE).format(noun=noun)
        return Asked(Noul(question), "yes" if wanted == positive else "no")
    names = rng.choice(_SENTIMENT_NAMES)
    return _two_way(rng.choice(_SENTIMENT).format(noun=noun), names, positive, rng)


def recommended(label: str, rng: Random) -> Asked:
    """Whether a critic recommends a film: wordings that training never uses. `label` is fresh or rotten."""
    fresh = label == "fresh"
    if rng.random() < 0.5:
        wanted = rng.random() < 0.5
        question = rng.choice(_RECOMMENDED if wanted else _ADVISED_AGAINST)
        return Asked(Noul(question), "yes" if wanted == fresh else "no")
    names = rng.choice(_VERDICT_NAMES)
    return _two_way(rng.choice(_VERDICT), names, fresh, rng)


def level(label: int, levels: int, noun: str, rng: Random) -> Asked:
    """How positive a `noun` is, on a scale of 3 or 5 levels; `label` is the level's index from the lowest."""
    names = rng.choice(_LEVEL_NAMES[levels])
    return Asked(Score(rng.choice(_LEVEL).format(noun=noun), names), names[label])


def spam(label: str, rng: Random) -> Asked:
    """Spam or not; `label` is spam or ham."""
    unwanted = label == "spam"
    if rng.random() < 0.4:
        wanted = rng.random() < 0.5
        question = rng.choice(_IS_SPAM if wanted else _IS_HAM)
        return Asked(Noul(question), "yes" if wanted == unwanted else "no")
    names = rng.choice(_SPAM_NAMES)
    return _two_way(rng.choice(_SPAM), names, unwanted, rng)


def topic(label: str, labels: Sequence[str], most: int, rng: Random) -> Asked:
    """Which of 2 to `most` topics (all of `labels` when there are no more than that) a text is about."""
    others = [other for other in labels if other != label]
    count = len(labels) if most >= len(labels) else rng.randint(2, most)
    options = [label, *rng.sample(others, count - 1)]
    rng.shuffle(options)
    return Asked(Choice(rng.choice(_TOPIC), options), label)


def review_or_plot(label: str, rng: Random) -> Asked:
    """Whether a sentence judges a film or tells its story; `label` is review or plot."""
    return _two_way(rng.choice(_REVIEW_OR_PLOT), rng.choice(_REVIEW_OR_PLOT_NAMES), label == "review", rng)


def audience(label: str, rng: Random) -> Asked:
    """For whom a passage of a book was written; `label` is children or adult."""
    return _two_way(rng.choice(_AUDIENCE), rng.choice(_AUDIENCE_NAMES), label == "children", rng)


def _two_way(question: str, names: Sequence[str | tuple[str, str]], first: bool, rng: Random) -> Asked:
    options = [name if isinstance(name, tuple) else (name, "") for name in names]
    gold = options[0 if first else 1][0]
    rng.shuffle(options)
    return Asked(Choice(question, dict(options)), gold)


_SENTIMENT = (
    "What is the sentiment of this {noun}?",
    "Is this {noun} positive or negative?",
    "How does the writer of this {noun} feel?",
    "Overall tone of the {noun}",
    "Which attitude does the {noun} express?",
    "Sentiment",
    "Classify the {noun} by its sentiment.",
    "The feeling behind this {noun} is",
    "Does the {noun} come across as good or bad?",
    "Judge the mood of the {noun}.",
    "What opinion does the writer express?",
    "Pick the sentiment.",
)
_SENTIMENT_NAMES: tuple[Sequence[str | tuple[str, str]], ...] = (
    ("positive", "negative"),
    ("Positive", "Negative"),
    ("favourable", "unfavourable"),
    ("good", "bad"),
    ("pleased", "displeased"),
    ("happy", "unhappy"),
    ("praise", "criticism"),
    ("thumbs up", "thumbs down"),
    ("POSITIVE", "NEGATIVE"),
    ("approval", "disapproval"),
    ("a positive feeling", "a negative feeling"),
    (
        ("positive", "something pleasant, praised or welcome"),
        ("negative", "something unpleasant or criticised"),
    ),
    (("pos", "positive sentiment"), ("neg", "negative sentiment")),
)
_POSITIVE = (
    "Is this {noun} positive?",
    "Does the writer sound pleased?",
    "Is the feeling in this {noun} a good one?",
    "The {noun} is favourable.",
    "Does this {noun} express something positive?",
    "The tone of the {noun} is positive.",
)
_NEGATIVE = (
    "Is this {noun} negative?",
    "Does the writer sound unhappy?",
    "Is the feeling in this {noun} a bad one?",
    "The {noun} is unfavourable.",
    "Does this {noun} express something negative?",
    "The tone of the {noun} is negative.",
)
_VERDICT = (
    "What is this critic's verdict on the film?",
    "Would this critic send friends to see the film or warn them off?",
    "Did the film succeed in the eyes of this critic?",
    "What does this sentence do to the film's reputation?",
)
_VERDICT_NAMES: tuple[Sequence[str | tuple[str, str]], ...] = (
    ("recommends it", "advises against it"),
    ("worth seeing", "not worth seeing"),
    (("fresh", "the critic likes the film"), ("rotten", "the critic dislikes the film")),
    ("success", "failure"),
)
_RECOMMENDED = (
    "Would this critic recommend the film?",
    "According to this critic, is the film worth the ticket?",
)
_ADVISED_AGAINST = (
    "Would this critic advise against the film?",
    "Was this critic let down by the film?",
)
_LEVEL = (
    "How positive is this {noun}?",
    "How does the writer feel, from worst to best?",
    "Rate the sentiment of the {noun}.",
    "How good is the feeling in this {noun}?",
    "Sentiment on a scale",
    "How favourable is the {noun}?",
    "Where does the mood of this {noun} lie?",
)
_LEVEL_NAMES: Mapping[int, tuple[tuple[str, ...], ...]] = {
    3: (
        ("negative", "neutral", "positive"),
        ("bad", "neither", "good"),
        ("unhappy", "indifferent", "happy"),
        ("Negative", "Neutral", "Positive"),
        ("unfavourable", "mixed or neutral", "favourable"),
        ("below zero", "about zero", "above zero"),
    ),
    5: (
        ("very negative", "negative", "neutral", "positive", "very positive"),
        ("terrible", "bad", "neither good nor bad", "good", "wonderful"),
        ("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        ("strongly against", "against", "indifferent", "in favour", "strongly in favour"),
        ("very unhappy", "unhappy", "neutral", "happy", "very happy"),
    ),
}
_SPAM = (
    "Is this mail spam?",
    "Which folder does this mail belong in?",
    "What kind of mail is this?",
    "Sort this mail.",
    "Mail filter: decide.",
    "The mail is",
)
_SPAM_NAMES: tuple[Sequence[str | tuple[str, str]], ...] = (
    ("spam", "not spam"),
    ("junk", "inbox"),
    ("Spam", "Legitimate"),
    ("unsolicited advertising", "ordinary correspondence"),
    (
        ("spam", "unwanted bulk mail that sells or cheats"),
        ("ham", "mail from a person, a list or a wanted service"),
    ),
    ("block it", "deliver it"),
    ("bulk mail nobody asked for", "genuine mail"),
)
_IS_SPAM = (
    "Is this mail spam?",
    "Is this unsolicited bulk mail?",
    "Should the filter throw this mail away?",
    "This is junk mail.",
    "Does the sender try to sell something or to cheat strangers?",
)
_IS_HAM = (
    "Is this a legitimate mail?",
    "Is this mail genuine correspondence?",
    "Should this mail reach the inbox?",
    "This is not spam.",
)
_TOPIC = (
    "What is this text about?",
    "Which topic does the text belong to?",
    "Choose the subject of the text.",
    "Topic",
    "The text mainly deals with",
)
_REVIEW_OR_PLOT = (
    "Is this sentence from a review or from a plot summary?",
    "What does this sentence do?",
    "Which kind of writing about a film is this?",
)
_REVIEW_OR_PLOT_NAMES: tuple[Sequence[str | tuple[str, str]], ...] = (
    ("review", "plot summary"),
    ("judges the film", "tells what happens in the film"),
    (("review", "a critic's opinion of a film"), ("plot", "what happens in the story")),
    ("opinion", "story"),
)
_AUDIENCE = (
    "For whom was this passage written?",
    "Which readers is the book meant for?",
    "On which shelf does this book belong?",
)
_AUDIENCE_NAMES: tuple[Sequence[str | tuple[str, str]], ...] = (
    ("children", "adults"),
    ("young readers", "grown-up readers"),
    ("children's books", "books for adults"),
)
