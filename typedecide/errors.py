"""The typed errors that every part of typedecide raises, each with a code that the page and the wire share.

Knows nothing about questions, tensors or files: an error is a message, a code, and the values at fault.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any


class TypedecideError(Exception):
    """Base of all errors of this package.

    `code` is stable and the same in the browser; `data` holds the offending values, by name.

    >>> TooLongError("The text does not fit.", tokens=9000, limit=8192).to_dict()["data"]
    {'tokens': 9000, 'limit': 8192}
    """

    code: str = "ERROR"

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data: dict[str, Any] = data

    def to_dict(self) -> dict[str, Any]:
        """The form that crosses process and thread borders: `{"code", "message", "data"}`."""
        return {"code": self.code, "message": self.message, "data": self.data}


class UnsupportedError(TypedecideError):
    """This machine, browser, model or file cannot be used; `data` says which and why."""

    code = "UNSUPPORTED"


class IntegrityError(TypedecideError):
    """A file or a number is not what it must be: a wrong hash, a wrong golden value, a non-finite logit."""

    code = "INTEGRITY"


class PrefixMismatchError(TypedecideError):
    """The cached prefix is not a token-level prefix of the full prompt.

    `position` is the first token index at which they differ, `prefix_token` the cached id there and
    `full_token` the full prompt's; None where that sequence is already over.
    """

    code = "PREFIX_MISMATCH"

    def __init__(
        self, message: str, *, position: int, prefix_token: int | None, full_token: int | None, **data: Any
    ) -> None:
        super().__init__(message, position=position, prefix_token=prefix_token, full_token=full_token, **data)
        self.position = position
        self.prefix_token = prefix_token
        self.full_token = full_token


class TooLongError(TypedecideError):
    """A text does not fit the context: it has `tokens` tokens, and `limit` would fit. Nothing is ever cut."""

    code = "TOO_LONG"

    def __init__(self, message: str, *, tokens: int, limit: int, **data: Any) -> None:
        super().__init__(message, tokens=tokens, limit=limit, **data)
        self.tokens = tokens
        self.limit = limit


class InvalidQuestionError(TypedecideError):
    """A question does not validate: `loc` is the path to the fault, `value` what was found there."""

    code = "INVALID_QUESTION"

    def __init__(self, message: str, *, value: Any, loc: Sequence[str | int] = (), **data: Any) -> None:
        super().__init__(message, value=value, loc=list(loc), **data)
        self.value = value
        self.loc: tuple[str | int, ...] = tuple(loc)

    def moved(self, loc: Sequence[str | int], message: str | None = None) -> InvalidQuestionError:
        """The same fault by another path, and in other words where a `message` is given."""
        data = {name: value for name, value in self.data.items() if name not in ("value", "loc")}
        return InvalidQuestionError(message or self.message, value=self.value, loc=loc, **data)

    def __str__(self) -> str:
        where = ".".join(map(str, self.loc)) or "question"
        return f"{self.message} (at {where!r}: {reprlib.repr(self.value)})"


class InvalidRequestError(TypedecideError):
    """A request does not validate: each of `faults` says where (`loc`), what is wrong (`msg`) and of which `type`."""

    code = "INVALID_REQUEST"


class InvalidStateError(TypedecideError):
    """The state is not a string, or it holds a lone surrogate, which UTF-8 cannot carry."""

    code = "INVALID_STATE"


class BundleError(TypedecideError):
    """A bundle folder is missing, malformed, or of another schema version."""

    code = "BUNDLE"


class QuotaError(TypedecideError):
    """Weights do not fit the browser's storage: they need `needed` bytes more, and `available` are free.

    `available` is None where the browser does not know.
    """

    code = "QUOTA"

    def __init__(self, message: str, *, needed: int, available: int | None, **data: Any) -> None:
        super().__init__(message, needed=needed, available=available, **data)
        self.needed = needed
        self.available = available


class DeviceLostError(TypedecideError):
    """The GPU device or the worker went away during the work."""

    code = "DEVICE_LOST"


class AbortedError(TypedecideError):
    """The caller cancelled the work."""

    code = "ABORTED"


ERRORS: Mapping[str, type[TypedecideError]] = {
    error.code: error
    for error in (
        UnsupportedError,
        IntegrityError,
        PrefixMismatchError,
        TooLongError,
        InvalidQuestionError,
        InvalidRequestError,
        InvalidStateError,
        BundleError,
        QuotaError,
        DeviceLostError,
        AbortedError,
    )
}
"""Every error class by its code."""

TEXT_FAULTS = (InvalidStateError, PrefixMismatchError, TooLongError)
"""What is wrong with one text, and no reason to give up others."""


def revive_error(plain: Mapping[str, Any]) -> TypedecideError:
    """The error that `to_dict` (or its JavaScript twin) described.

    An unknown code gives a plain `TypedecideError` that carries that code.

    >>> revive_error({"code": "ABORTED", "message": "Cancelled.", "data": {}})
    AbortedError('Cancelled.')
    """
    code, message, data = plain["code"], plain["message"], plain["data"]
    known = ERRORS.get(code)
    if known is not None:
        return known(message, **data)
    error = TypedecideError(message, **data)
    error.code = code
    return error
