"""The System One wire: the body of a request -> state and questions; answers and errors -> the body of a reply.

Knows no HTTP server, no engine and no tensors. `web/systemone.js` is its twin; both run tests/vectors/systemone.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from typedecide import wire_json
from typedecide.errors import (
    InvalidQuestionError,
    InvalidRequestError,
    InvalidStateError,
    TooLongError,
    TypedecideError,
    UnsupportedError,
)
from typedecide.questions import Question, find_surrogate, parse_questions

PATH = "/v1/systemone"
MODELS_PATH = "/v1/models"

ALIAS = "jev-latest"
"""The model that official clients ask for when they are told none: it stands for the one that is served."""

# What answers hold that the standard names or leaves out; the rest goes out under `x_`.
_OWN = ("kind", "names", "logits", "probabilities", "value", "choice", "confidence")


@dataclass(frozen=True)
class Request:
    """A request that validates.

    model: the model asked for, None where the request names none.
    state: the text; a structured state as its JSON text.
    questions: by id, in the order sent.
    legends: for each score question, its levels as they were sent.
    """

    model: str | None
    state: str
    questions: dict[str, Question]
    legends: dict[str, list[Any]]


class Reply(NamedTuple):
    """What goes back: the status, the body (`wire_json.dump` writes it), and headers beside its media type."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass
class _Reader:
    """Reads the fields of one request, and notes all that is wrong with them."""

    body: dict[str, Any]
    faults: list[dict[str, Any]] = field(default_factory=list)

    def fault(self, loc: tuple[str | int, ...], message: str, type: str) -> None:
        self.faults.append(_fault(loc, message, type))

    def model(self) -> str | None:
        model = self.body.get("model")
        if model is None or isinstance(model, str):
            return model
        self.fault(("model",), "The model must be a string.", "string_type")
        return None

    def state(self) -> str:
        state = _text(self.body.get("state"))
        if "state" not in self.body:
            self.fault(("state",), "The state is missing.", "missing")
        elif not isinstance(state, str):
            self.fault(("state",), "The state must be a string, an object or an array.", "union_type")
        elif find_surrogate(state) is not None:
            self.fault(("state",), "The state holds a lone surrogate.", "value_error")
        return str(state)

    def assets(self) -> None:
        # The standard's pictures; left unread, they would be missing from the text that is judged.
        if self.body.get("assets"):
            self.fault(("assets",), "Assets are not read: this model takes text only.", "value_error")

    def questions(self) -> dict[str, Question]:
        wire = self.body.get("questions")
        if "questions" not in self.body:
            self.fault(("questions",), "The questions are missing.", "missing")
        elif not isinstance(wire, dict):
            self.fault(("questions",), "The questions must be an object of id to question.", "dict_type")
        elif not wire:
            self.fault(("questions",), "There must be at least one question.", "too_short")
        else:
            return {key: question for id, one in wire.items() for key, question in self._question(id, one)}
        return {}

    def _question(self, id: str, wire: object) -> list[tuple[str, Question]]:
        try:
            return [*parse_questions({id: _plain(id, wire)}).items()]
        except InvalidQuestionError as error:
            self.fault(("questions", *error.loc), error.message, "value_error")
            return []


def parse_request(body: bytes) -> Request:
    """The request in a body.

    State, instructions and descriptions may be strings, objects or arrays; objects and arrays are read as their JSON
    text on one line, keys in their order and numbers as they were written. Beyond the standard, the options of a choice
    may be a list, as `parse_question` takes it, and `model` may be missing. Unknown fields are ignored.

    Raises:
        InvalidRequestError: with all that is wrong.
    """
    return read_request(wire_json.parse(body))


def read_request(wire: object) -> Request:
    """As `parse_request`, from what `wire_json.parse` makes of a body."""
    if not isinstance(wire, dict):
        message = "The body must be an object."
        raise InvalidRequestError(message, faults=[_fault((), message, "dict_type")])
    reader = _Reader(wire)
    model, state, questions = reader.model(), reader.state(), reader.questions()
    reader.assets()
    if reader.faults:
        raise InvalidRequestError(str(reader.faults[0]["msg"]), faults=reader.faults)
    legends = {id: wire["questions"][id]["criteria"] for id, one in questions.items() if one.kind == "score"}
    return Request(model, state, questions, legends)


def check_model(request: Request, served: str) -> None:
    """UnsupportedError where a request asks for another model than the one served."""
    if request.model not in (None, served, ALIAS):
        raise UnsupportedError(
            f"There is no model {wire_json.dump(request.model)} here, but {served}, also known as {ALIAS}.",
            model=request.model,
            known=[served, ALIAS],
        )


def answered(request: Request, model: str, done: Mapping[str, Any]) -> Reply:
    """The reply to a request.

    `usage.input_tokens` counts the prompt of the text, also where it was kept from before, and the tokens run for the
    questions, in which what questions share counts once. No tokens are put out.

    Args:
        request: what was asked.
        model: the name of the model that answered.
        done: the JSON form of `typedecide.results.Decided`.
    """
    cost = {name: done[name] for name in ("tokens_run", "tokens_saved", "runs", "ms")}
    answers = {id: answer_to_wire(done["answers"][id], request.legends.get(id)) for id in request.questions}
    tokens = done["prefill"]["tokens"] + done["tokens_run"]
    body = {
        "model": model,
        "answers": answers,
        "usage": {"input_tokens": tokens, "output_tokens": 0},
        "x_cost": {"prefix_tokens": done["prefill"]["tokens"], "prefill_ms": done["prefill"]["ms"], **cost},
    }
    return Reply(200, body, {})


def answer_to_wire(answer: Mapping[str, Any], legend: list[Any] | None) -> dict[str, Any]:
    """An answer's JSON form as the standard has it; what is beyond the standard has names that begin with `x_`.

    Args:
        answer: the JSON form of `typedecide.results.Debiased`.
        legend: the levels of a score, as they were sent.
    """
    kind = answer["kind"]
    extra = beyond(answer)
    if kind == "noul":
        return {"type": kind, "noul": answer["value"], "x_confidence": answer["confidence"], **extra}
    names: Any = answer["names"] if legend is None else map(str, range(len(legend)))
    spread = dict(zip(names, answer["probabilities"], strict=True))
    found = {"choice": answer["choice"]}
    if legend is not None:
        found = {"score": answer["value"], "legend": {str(i): level for i, level in enumerate(legend)}}
    return {"type": kind, **found, "probabilities": spread, "confidence": answer["confidence"], **extra}


def beyond(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer's JSON form says beyond the standard, under names that begin with `x_`."""
    return {
        name if name.startswith("x_") else f"x_{name}": value
        for name, value in answer.items()
        if name not in _OWN
    }


def models(info: Mapping[str, Any]) -> Reply:
    """The reply that lists what is served: the model under its own name, and as `ALIAS`.

    Args:
        info: an engine's `info`.
    """
    name = info["model"]["name"]
    about = f"{name}, {info['format']}, on {info['candidate']}, {info['context']} tokens"
    # The standard wants a date. A bundle may not know when its model came out, and then says so.
    released = info["model"].get("released")
    told = {"description": about if released else f"{about}; release date not known"}
    dated = {**told, "release_date": released or "1970-01-01"}
    return Reply(200, {"models": [{"name": name, **dated}, {"name": ALIAS, **dated}]}, {})


def refused(error: TypedecideError) -> Reply:
    """The reply that tells an error: 422 for what does not validate, 413 for what does not fit, 404 for another model,
    else 500."""
    if isinstance(error, InvalidRequestError):
        return Reply(422, {"detail": error.data["faults"]}, {})
    if isinstance(error, InvalidQuestionError):
        return Reply(422, {"detail": [_fault(("questions", *error.loc), error.message, "value_error")]}, {})
    if isinstance(error, InvalidStateError):
        return Reply(422, {"detail": [_fault(("state",), error.message, "value_error")]}, {})
    if isinstance(error, TooLongError):
        lengths = {"x_tokens": error.tokens, "x_limit": error.limit}
        return failure(413, "max_tokens_exceeded", error.message, lengths)
    if isinstance(error, UnsupportedError) and "known" in error.data:
        return failure(404, "not_found", error.message)
    return failure(500, "internal_error", error.message, {"x_code": error.code})


def failure(
    status: int,
    error_type: str,
    message: str,
    more: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error in the standard's shape for all that is not about the content of a request."""
    detail = {"error_type": error_type, "message": message, **(more or {})}
    return Reply(status, {"detail": detail}, headers or {})


def not_found(path: str) -> Reply:
    """The reply where there is nothing."""
    return failure(404, "not_found", f"There is no {path} here.")


def not_allowed(method: str, allowed: str) -> Reply:
    """The reply to a method that a path does not take."""
    message = f"{method} is not allowed, but {allowed}."
    return failure(405, "method_not_allowed", message, headers={"Allow": allowed})


def _fault(loc: tuple[str | int, ...], message: str, type: str) -> dict[str, Any]:
    return {"loc": ["body", *loc], "msg": message, "type": type}


def _text(value: Any) -> Any:
    """A structured text as the string that it is read as; all else as it is."""
    return wire_json.dump(value) if isinstance(value, dict | list) else value


def _plain(id: str, wire: Any) -> Any:
    """A question whose texts are strings, as `parse_question` takes it."""
    if not isinstance(wire, dict):
        return wire
    kind, criteria = wire.get("type"), wire.get("criteria")
    if kind == "score":
        if not isinstance(criteria, list):
            raise InvalidQuestionError(
                "The levels of a score must be a list, low to high.", value=criteria, loc=(id, "criteria")
            )
        criteria = [_text(level) for level in criteria]
    elif isinstance(criteria, dict):
        criteria = {name: _text(about) for name, about in criteria.items()}
    elif kind == "choice" and isinstance(criteria, list):
        criteria = [_option(item) for item in criteria]
    return {"type": kind, "instructions": _text(wire.get("instructions")), "criteria": criteria}


def _option(item: Any) -> Any:
    """An option of a list, its description as a string."""
    if isinstance(item, dict) and "name" in item:
        return {"name": item["name"], "description": _text(item.get("description"))}
    if isinstance(item, list) and len(item) == 2:
        return [item[0], _text(item[1])]
    return item
