"""The decoder in PyTorch against the graph in onnxruntime, and the gradients that are written out by hand.

Needs PyTorch (requirements/train.txt), so `make test` does not collect it: `python -m pytest tests/train/check_*.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from pybuild.adapter import write_adapter
from pybuild.graph import Decoder, build
from pybuild.quantize import store
from pybuild.sources import load_source
from pybuild.tune.decoder import AdaptedProduct
from pybuild.tune.samples import Sample, uninformed
from pybuild.tune.task import Shape as Asked
from pybuild.tune.task import Tuned, loss_of
from tests.conftest import FIXTURES
from typedecide.model import NativeModel, Shape, Suffix
from typedecide.pointer import scores
from typedecide.questions import Choice, Noul, Score

torch.set_num_threads(1)  # the models are tiny, and threads that wait for one another slow them down

QUESTIONS = (
    Choice("Which team?", {"billing": "money", "shipping": "parcels", "other": ""}),
    Noul("Is it late?"),
    Score("How late?", ["on time", "a day", "a week", "never came"]),
)
STATES = ("the parcel arrived late", "nobody answered; the parcel A B is at Evidence: customer writes", "N/A")
SMALL = Asked(rank=4, alpha=6, pointer=8)


def samples(questions: tuple[Choice | Noul | Score, ...] = QUESTIONS) -> list[Sample]:
    return [Sample(state, questions, tuple(map(uninformed, questions))) for state in STATES]


def trained(name: str, shape: Asked = SMALL) -> Tuned:
    """A fixture whose adapters do something."""
    torch.manual_seed(3)
    model = Tuned(load_source(str(FIXTURES / name)), shape, torch.float32)
    with torch.no_grad():
        for linear in model.decoder.linears():
            linear.b.copy_(torch.randn_like(linear.b).half().float() * 0.25)
            linear.a.copy_(linear.a.half().float())
        if model.pointer is not None:
            model.pointer.weight.copy_((torch.randn_like(model.pointer.weight) * 0.1).half().float())
    return model


def built(tmp_path: Path, name: str, model: Tuned) -> NativeModel:
    """The same through adapter files, merged weights and the graph."""
    layers = {
        layer: (a.detach().numpy(), b.detach().numpy())
        for linear in model.decoder.linears()
        for layer, a, b in linear.adapters()
    }
    assert model.pointer is not None
    facts = {"base": str(FIXTURES / name), "rank": SMALL.rank, "alpha": SMALL.alpha}
    write_adapter(tmp_path / "adapter", layers, model.pointer.weight.detach().numpy(), facts)
    source = load_source(str(tmp_path / "adapter"))
    decoder = Decoder.from_config(source.config)
    layout = store(decoder, source.weights, "fp32", tmp_path, decoder.positions)
    data = {file: (tmp_path / file).read_bytes() for file, _ in layout.files()}
    shape = Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, decoder.positions)
    return NativeModel(build(decoder, layout, "explicit"), data, shape)


@pytest.mark.parametrize("name", ("llama", "llama-untied", "qwen2", "qwen3"))
def test_pointer_logits_are_those_of_the_built_model(tmp_path: Path, name: str) -> None:
    model, worst = trained(name), 0.0
    batch = [model.encode(sample, random.Random(0)) for sample in samples()]
    with torch.inference_mode():
        found = model(batch)
    with built(tmp_path, name, model) as native:
        for one, logits in zip(batch, found, strict=True):
            cache = native.prefill(model.prompt.state_prefix_ids(model.tokenizer, one.sample.state))
            suffixes = [
                Suffix(s.ids, branches=s.branches, tail=s.tail) for a in one.asked for s in a.suffixes
            ]
            projections, _ = native.score(cache, suffixes)
            for mine, theirs in zip(logits, projections, strict=True):
                expected = scores(theirs.ravel().tolist(), len(mine))
                worst = max(worst, float(np.abs(mine.numpy() - expected).max()))
    print(f"{name}: largest logit difference {worst:.1e}")
    assert worst <= 1e-4


def test_samples_of_one_pass_do_not_see_one_another() -> None:
    model = trained("qwen3")
    batch = [model.encode(sample, random.Random(0)) for sample in samples()]
    with torch.inference_mode():
        together = model(batch)
        alone = [model([one])[0] for one in batch]
    for a, b in zip(together, alone, strict=True):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


def test_the_order_of_options_changes_nothing_in_a_set() -> None:
    model = trained("llama")
    plain, turned = Choice("?", ["a", "bb", "the parcel"]), Choice("?", ["the parcel", "a", "bb"])
    first, second = ([model.encode(samples((q,))[0], random.Random(0))] for q in (plain, turned))
    with torch.inference_mode():
        ((x,),), ((y,),) = model(first), model(second)
    torch.testing.assert_close(x, y[[1, 2, 0]], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "shape",
    (Asked("pointer", "list"), Asked("labels", "list"), Asked("text", "set")),
    ids=lambda s: s.readout,
)
def test_other_readouts_learn(shape: Asked) -> None:
    model = trained("llama", shape)
    target = (0.0, 1.0, 0.0)
    sample = Sample(STATES[0], QUESTIONS[:1], (target,))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for _ in range(24):
        one = model.encode(sample, random.Random(0))
        loss = loss_of(model([one])[0], sample)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    print(f"{shape.readout} {shape.structure}: {losses[0]:.2f} to {losses[-1]:.2f}")
    assert losses[-1] < losses[0] * 0.7


def test_gradients_of_the_adapted_product() -> None:
    torch.manual_seed(0)
    x, w, a, b = (torch.randn(*size, dtype=torch.float64) for size in ((5, 7), (9, 7), (6, 7), (9, 3)))
    for tensor in (x, a, b):
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, a, b: AdaptedProduct.apply(x, w, a, b, [4, 5], 0.5), (x, a, b))
