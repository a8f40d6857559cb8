"""OpenAI's Decisions API as a form of the System One wire: `predicate` is `noul`, `input` is the state.

Knows no HTTP server and no engine. What the request says is checked by `systemone.py`, under that module's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typedecide import systemone, wire_json
from typedecide.errors import InvalidRequestError
from typedecide.systemone import Reply

PATH = "/v1/decisions"

_KINDS = {"predicate": "noul", "choice": "choice", "score": "score"}


def parse_request(body: bytes) -> tuple[systemone.Request, list[dict[str, Any]]]:
    """The request in a body, its questions under "0", "1", …; and the questions as they were sent.

    Raises:
        InvalidRequestError: with what is wrong.
    """
    wire = wire_json.parse(body)
    if not isinstance(wire, dict):
        raise _invalid((), "The body must be an object.")
    questions = wire.get("questions")
    if not isinstance(questions, list):
        raise _invalid(("questions",), "The questions must be a list.")
    if "input" not in wire:
        raise _invalid(("input",), "The input is missing.")
    asked = {str(index): _question(index, one) for index, one in enumerate(questions)}
    plain = {"model": wire.get("model"), "state": _text(wire["input"]), "questions": asked}
    return systemone.read_request(plain), questions


def answered(questions: list[dict[str, Any]], model: str, done: Mapping[str, Any]) -> Reply:
    """The reply to a request.

    Args:
        questions: as `parse_request` gives them.
        model, done: as in `systemone.answered`.
    """
    prefix = done["prefill"]
    tokens = prefix["tokens"] + done["tokens_run"]
    usage = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": prefix["tokens"] if prefix["kept"] else 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }
    answers = [_answer(one, done["answers"][str(index)]) for index, one in enumerate(questions)]
    return Reply(200, {"model": model, "answers": answers, "usage": usage}, {})


def failed(reply: Reply) -> Reply:
    """An error of `systemone.py` in OpenAI's shape; what does not validate is 400 here."""
    detail = reply.body["detail"]
    if isinstance(detail, list):
        fault = detail[0]
        found = {"message": fault["msg"], "type": "invalid_request_error", "param": _param(fault["loc"])}
        return Reply(400, {"error": {**found, "code": None}}, reply.headers)
    kind = "server_error" if reply.status >= 500 else "invalid_request_error"
    found = {"message": detail["message"], "type": kind, "param": None, "code": detail["error_type"]}
    return Reply(reply.status, {"error": found}, reply.headers)


def _text(given: Any) -> Any:
    """The text of an input: itself, or the texts of messages, a blank line between them."""
    if not isinstance(given, list):
        return given
    return "\n\n".join(text for index, message in enumerate(given) for text in _texts(index, message))


def _texts(index: int, message: Any) -> list[str]:
    from_user = isinstance(message, dict) and message.get("role") == "user"
    content = message.get("content") if from_user else None
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else [None]
    texts: list[Any] = [
        part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "input_text"
    ]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise _invalid(("input", index), "Only text in messages of a user is read.")
    return texts


def _question(index: int, one: Any) -> dict[str, Any]:
    kind = one.get("type") if isinstance(one, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _invalid(("questions", index), "A question must be a predicate, a choice or a score.")
    asked = {"type": _KINDS[kind], "instructions": one.get("instructions")}
    if kind == "predicate":
        return asked
    if kind == "choice":
        return {**asked, "criteria": [[*pair] for pair in _options(index, one.get("choices"), "value")]}
    # What a prompt shows of a level with a description.
    levels = [
        f"{label}: {about}" if about else label
        for label, about in _options(index, one.get("levels"), "label")
    ]
    return {**asked, "criteria": levels}


def _options(index: int, options: Any, name: str) -> list[tuple[Any, str | None]]:
    """Names and descriptions. A choice may also be a truth value."""
    if not isinstance(options, list) or not all(isinstance(option, dict) for option in options):
        raise _invalid(("questions", index), "Choices and levels must be lists of objects.")
    pairs = [(_named(option.get(name)), option.get("description")) for option in options]
    if not all(isinstance(key, str) and isinstance(about, str | None) for key, about in pairs):
        raise _invalid(("questions", index), f"A {name} and its description must be strings.")
    return pairs


def _named(value: Any) -> Any:
    return wire_json.dump(value) if isinstance(value, bool) else value


def _answer(one: dict[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    head = {"type": one["type"], "name": one.get("name")}
    extra = systemone.beyond(answer)
    if one["type"] == "predicate":
        return {**head, "probability": answer["value"], **extra}
    options = one["choices" if one["type"] == "choice" else "levels"]
    found = zip(options, answer["probabilities"], strict=True)
    if one["type"] == "choice":
        spread = [{"value": option["value"], "probability": p} for option, p in found]
        chosen = options[answer["names"].index(answer["choice"])]["value"]
        return {
            **head,
            "choice": chosen,
            "probabilities": spread,
            "confidence": answer["confidence"],
            **extra,
        }
    spread = [{"value": i, "label": level["label"], "probability": p} for i, (level, p) in enumerate(found)]
    told = {"score": answer["value"], "probabilities": spread, "confidence": answer["confidence"]}
    return {**head, **told, **extra}


def _param(loc: list[str | int]) -> str | None:
    """What the error is about, as OpenAI names it."""
    name, *rest = [*loc[1:], ""]
    if name == "questions" and rest[:-1]:
        return f"questions[{rest[0]}]"
    return "input" if name == "state" else str(name) or None


def _invalid(loc: tuple[str | int, ...], message: str) -> InvalidRequestError:
    fault = {"loc": ["body", *loc], "msg": message, "type": "value_error"}
    return InvalidRequestError(message, faults=[fault])
