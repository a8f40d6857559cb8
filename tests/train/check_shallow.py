"""Self-distillation of a shallow model: what is kept at the cut is exact, a run can go on, and it learns.

Needs PyTorch (requirements/train.txt), so `make test` does not collect it: `python -m pytest tests/train/check_*.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from pybuild.adapter import FACTS, TENSORS, write_adapter
from pybuild.graph import POINTER, Decoder, build
from pybuild.quantize import store
from pybuild.sources import load_source
from pybuild.tune import agreement
from pybuild.tune.kept import Cut
from pybuild.tune.loop import Gradients
from pybuild.tune.samples import Mix
from pybuild.tune.shallow import Distillation, Material, ShallowRecipe, prepare
from pybuild.tune.task import Encoded, Tuned
from pybuild.tune.train import Limits
from tests.conftest import FIXTURES
from tests.train.check_decoder import SMALL, samples, trained
from tests.train.check_training import records
from typedecide.errors import InvalidStateError, UnsupportedError
from typedecide.labelled import Labelled
from typedecide.model import NativeModel, Shape, Suffix
from typedecide.pointer import scores
from typedecide.shallow import ANCHORS

torch.set_num_threads(1)  # the models are tiny, and threads that wait for one another slow them down

LABELS = replace(SMALL, readout="labels", structure="orders")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that is an adapter on a fixture, with a pointer, like the tuned default."""
    source, folder = load_source(str(FIXTURES / "llama")), tmp_path_factory.mktemp("base")
    d, rng = Decoder.from_config(source.config), np.random.default_rng(1)
    shapes = {"self_attn.q_proj": d.heads * d.head_dim, "self_attn.v_proj": d.kv_heads * d.head_dim}
    layers = {
        f"model.layers.{layer}.{name}": (
            rng.normal(size=(4, d.hidden)).astype(np.float32) / 4,
            rng.normal(size=(outputs, 4)).astype(np.float32),
        )
        for layer in range(d.layers)
        for name, outputs in shapes.items()
    }
    pointer = rng.normal(0, 0.25, (17, d.hidden)).astype(np.float32)
    write_adapter(folder, layers, pointer, {"base": str(FIXTURES / "llama"), "rank": 4, "alpha": 8})
    return str(folder)


def recipe(base: str, **changes: object) -> ShallowRecipe:
    plain = ShallowRecipe(base, 1, "bos", Mix(hidden=0.1), samples=90, epochs=3, texts=16, rank=4, warmup=2)
    return replace(plain, **changes)


def prepared(recipe: ShallowRecipe, folder: Path, stream: Iterator[Labelled] | None = None) -> Material:
    held_out = {"t": list(islice(records(9), 12))}
    return prepare(recipe, stream or records(), held_out, folder, "cpu", torch.float32)


def run(recipe: ShallowRecipe, folder: Path) -> Distillation:
    found = Distillation(recipe, Limits(), prepared(recipe, folder), folder)
    found.run()
    return found


def encoded(model: Tuned) -> list[Encoded]:
    return [model.encode(sample, random.Random(0)) for sample in samples()]


def whole_forward(cut: Cut, batch: list[Encoded]) -> list[list[torch.Tensor]]:
    """All tokens through all layers, where the upper ones hide the texts."""
    joined = cut.model.joined(batch)
    upper = []
    for one in batch:
        visible = one.packed.visible.copy()
        visible[:, cut.anchor : one.packed.past] = False
        np.fill_diagonal(visible, True)
        upper.append(torch.from_numpy(visible))
    return cut.model.logits(batch, cut.model.decoder(*joined, cut.layers, upper))


def flat(logits: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [one for found in logits for one in found]


def close(found: list[list[torch.Tensor]], wanted: list[list[torch.Tensor]], limit: float = 1e-5) -> bool:
    pairs = zip(flat(found), flat(wanted), strict=True)
    return all(float((a - b).abs().max()) <= limit for a, b in pairs)


@pytest.mark.parametrize("shape", (SMALL, LABELS), ids=lambda s: s.readout)
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("name", ("llama", "qwen3"))
def test_kept_states_give_what_a_whole_forward_gives(name: str, anchor: str, shape: object) -> None:
    model = trained(name, shape)
    cut = Cut.of(model, 1, anchor)
    batch = encoded(model)
    # The adapters of the lower layers stay as they were: no change.
    for linear in model.decoder.layers[:1].modules():
        if hasattr(linear, "enabled"):
            linear.b.data.zero_()
    with torch.no_grad():
        kept = cut.keep(batch)
        wanted = whole_forward(cut, batch)
        assert close(cut.answer(kept), wanted)
        with model.decoder.unadapted():
            plain = [[one.log_softmax(-1) for one in logits] for logits in model(batch)]
    assert close([list(one.teacher) for one in kept], plain)
    assert not close(wanted, plain, 1e-2)
    assert cut.anchor == {"none": 0, "bos": 1}.get(anchor, len(model.prompt.head_ids(model.tokenizer)))


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_cut_above_all_layers_is_the_plain_model(anchor: str) -> None:
    model = trained("llama")
    cut = Cut.of(model, len(model.decoder.layers), anchor)
    batch = encoded(model)
    with torch.no_grad(), model.decoder.unadapted():
        plain = model(batch)
        answers = cut.answer(cut.keep(batch))
        assert all(torch.equal(a, b) for a, b in zip(flat(answers), flat(plain), strict=True))
        assert close(whole_forward(cut, batch), plain, 0)


def test_the_text_does_not_reach_the_upper_layers(base: str, tmp_path: Path) -> None:
    """The fault that the first test must find: one more token of the text seen moves the answers."""
    cut = prepared(recipe(base), tmp_path).cut
    batch = encoded(cut.model)
    with torch.no_grad():
        more = replace(cut, anchor=cut.anchor + 30)
        assert not close(whole_forward(more, batch), cut.answer(cut.keep(batch)), 1e-3)


def test_it_learns_and_its_adapter_is_a_model(base: str, tmp_path: Path) -> None:
    done = run(recipe(base, epochs=12, rate=5e-3), tmp_path)
    (before,), (after,) = done.untrained, done.best_rows
    print(before, after)
    assert after["kl"] < before["kl"] / 3
    done.write(tmp_path / "out", {"command": "none"})
    facts = json.loads((tmp_path / "out" / FACTS).read_text())
    assert (facts["base"], facts["shallow"]) == (base, {"layers": 1, "anchor": "bos"})
    assert (facts["recipe"]["seed"], facts["training"]["untrained"]) == (0, done.untrained)
    mine, theirs = (load_source(name).weights for name in (str(tmp_path / "out"), base))
    changed = {n for n in mine.names() if not np.array_equal(mine.get(n), theirs.get(n))}
    assert {name.split(".")[2] for name in changed - {POINTER}} == {"1", "2"}
    assert list(mine.names()) == list(theirs.names())


def test_the_same_seed_gives_the_same_adapter(base: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        run(recipe(base), tmp_path / name).write(tmp_path / name / "out", {})
    first, second = ((tmp_path / name / "out" / TENSORS).read_bytes() for name in ("first", "second"))
    assert first == second


class Interrupted(Distillation):
    """Ctrl-C in its fifth step."""

    def gradients(self) -> Gradients:
        if self.step == 4:
            raise KeyboardInterrupt
        return super().gradients()


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(base: str, tmp_path: Path) -> None:
    made = recipe(base)
    whole = run(made, tmp_path / "whole")
    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        prepared(made, parts, interrupted(70))
    first = parts / "kept" / "train-000000.pt"
    written = first.stat().st_mtime_ns
    Interrupted(made, Limits(), prepared(made, parts), parts).run()
    assert first.stat().st_mtime_ns == written
    rest = Distillation(made, Limits(), prepared(made, parts), parts)
    rest.resume()
    assert (rest.step, rest.untrained) == (4, whole.untrained)
    rest.run()
    assert (rest.step, rest.decisions, rest.tokens) == (whole.step, whole.decisions, whole.tokens)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters, rest.parameters, strict=True))
    other = replace(made, epochs=9)
    with pytest.raises(InvalidStateError, match="another recipe"):
        Distillation(other, Limits(), prepared(other, parts), parts).resume()


def interrupted(count: int) -> Iterator[Labelled]:
    """Records, and Ctrl-C after so many."""
    yield from islice(records(), count)
    raise KeyboardInterrupt


def test_states_of_another_cut_are_computed_anew(base: str, tmp_path: Path) -> None:
    bos = prepared(recipe(base), tmp_path)
    none = prepared(recipe(base, anchor="none"), tmp_path)
    assert all(len(a.states) == len(b.states) + 1 for a, b in zip(bos.train, none.train, strict=True))


def test_figures_are_those_of_their_definition(base: str, tmp_path: Path) -> None:
    material = prepared(recipe(base), tmp_path)
    (row,) = agreement.compare(material.cut, material.held_out)
    shown, hidden = material.held_out["t"]
    with torch.no_grad():
        mine = [[p.softmax(-1).numpy() for p in material.cut.answer([one])[0]] for one in shown]
        blank = [[p.softmax(-1).numpy() for p in material.cut.answer([one])[0]] for one in hidden]
    kl, same, right, n, errors, sizes = 0.0, 0, 0, 0, 0.0, 0.0
    for i, one in enumerate(shown):
        for j, target in enumerate(one.encoded.sample.targets):
            teacher, s = one.teacher[j].exp().numpy(), mine[i][j]
            kl += float((teacher * np.log(teacher / s)).sum())
            same += teacher.argmax() == s.argmax()
            right += target[s.argmax()] == 1
            effect = np.log(s) - np.log(blank[i][j])
            wanted = (one.teacher[j] - hidden[i].teacher[j]).numpy()
            effect, wanted = effect - effect.mean(), wanted - wanted.mean()
            errors, sizes, n = errors + ((effect - wanted) ** 2).sum(), sizes + (wanted**2).sum(), n + 1
    assert row.n == n == 24
    assert row.kl == pytest.approx(kl / n, rel=1e-4)
    assert row.effect_error == pytest.approx(errors / sizes, rel=1e-4)
    assert (row.agreement, row.accuracy) == (pytest.approx(same / n), pytest.approx(right / n))


@pytest.mark.parametrize("layers", (0, 3, 9))
def test_a_cut_that_trains_nothing_is_refused(base: str, tmp_path: Path, layers: int) -> None:
    with pytest.raises(UnsupportedError, match="from 1 to 2"):
        prepared(recipe(base, layers=layers), tmp_path)


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_trained_adapter_answers_in_the_graph_as_it_was_trained(
    base: str, tmp_path: Path, anchor: str
) -> None:
    done = run(recipe(base, anchor=anchor, rate=5e-3), tmp_path)
    done.write(tmp_path / "out", {})
    for parameter in done.parameters:  # as the adapter's file holds them
        parameter.data.copy_(parameter.data.half().float())
    source = load_source(str(tmp_path / "out"))
    d = Decoder.from_config(source.config)
    layout = store(d, source.weights, "fp32", tmp_path, d.positions)
    data = {file: (tmp_path / file).read_bytes() for file, _ in layout.files()}
    cut, worst = done.material.cut, 0.0
    shape = Shape(d.layers, d.kv_heads, d.head_dim, d.positions, cut.layers)
    batch = encoded(cut.model)
    with torch.no_grad():
        answers = cut.answer(cut.keep(batch))
    with NativeModel(build(d, layout, "explicit", cut.layers), data, shape) as native:
        for one, logits in zip(batch, answers, strict=True):
            prefix = cut.model.prompt.state_prefix_ids(cut.model.tokenizer, one.sample.state)
            suffixes = [
                Suffix(s.ids, branches=s.branches, tail=s.tail) for a in one.asked for s in a.suffixes
            ]
            found, _ = native.score(native.prefill(prefix, anchor=cut.anchor), suffixes)
            for mine, theirs in zip(logits, found, strict=True):
                expected = scores(theirs.ravel().tolist(), len(mine))
                worst = max(worst, float(np.abs(mine.numpy() - expected).max()))
    assert worst <= 1e-4
