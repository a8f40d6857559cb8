"""Typed questions about a text, answered by a small language model as a probability for each option.

Importing it imports nothing compiled: the engines are in `typedecide.native` and `typedecide.page`.
"""

from typedecide.errors import (
    AbortedError,
    BundleError,
    DeviceLostError,
    IntegrityError,
    InvalidQuestionError,
    InvalidRequestError,
    InvalidStateError,
    PrefixMismatchError,
    TooLongError,
    TypedecideError,
    UnsupportedError,
)
from typedecide.prompt import Label, Prompt, PromptSpec, Tokenizer
from typedecide.questions import Choice, Criterion, Noul, Question, Score, parse_question, parse_questions
from typedecide.readout import Answer, read, softmax

__version__ = "0.1.0"

__all__ = [
    "AbortedError",
    "Answer",
    "BundleError",
    "Choice",
    "Criterion",
    "DeviceLostError",
    "IntegrityError",
    "InvalidQuestionError",
    "InvalidRequestError",
    "InvalidStateError",
    "Label",
    "Noul",
    "PrefixMismatchError",
    "Prompt",
    "PromptSpec",
    "Question",
    "Score",
    "Tokenizer",
    "TooLongError",
    "TypedecideError",
    "UnsupportedError",
    "__version__",
    "parse_question",
    "parse_questions",
    "read",
    "softmax",
]
