"""`python -m bench.peers.export`: the stock model's weights as an ONNX export in the layout that transformers.js loads.

The exporter is onnxruntime-genai's model builder, the one behind many of the hub's exports; it runs in an environment
of its own, made from exporter.txt. Its 8-bit file is quantised as transformers.js's own conversion script does it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from bench.common import BUNDLES
from pybuild.gguf_model import GgufModel
from pybuild.sources import STOCK_MODEL, Source, load_source, stock_file
from typedecide.errors import TypedecideError

OUT = BUNDLES / "peers" / "export"
"""Where the export is looked for."""

FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
)

COMMAND = "python -m bench.peers.export"

REQUIREMENTS = Path(__file__).with_name("exporter.txt")

# The exporter's environment has none of this project's code, so what it runs is told to it on the command line. Its
# builder leaves the size of a head open, which transformers.js takes from the graph.
_FINISH = """
import sys, onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
source, size, target, quantise = sys.argv[1:]
model = onnx.load(source)
for value in (*model.graph.input, *model.graph.output):
    if value.name.startswith(("past_key_values.", "present.")):
        value.type.tensor_type.shape.dim[3].dim_value = int(size)
onnx.save(model, target)
if quantise == "True":
    extra = {"EnableSubgraph": True, "MatMulConstBOnly": True}
    quantize_dynamic(target, target, weight_type=QuantType.QUInt8, extra_options=extra)
"""


class ExportError(TypedecideError):
    """A step of the export that failed."""

    code = "EXPORT"


def is_there() -> bool:
    """Whether OUT holds a whole export."""
    return all((OUT / name).is_file() for name in FILES)


def write_checkpoint(source: Source, folder: Path) -> None:
    """Write a model as the exporter reads it: a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf = GgufModel(stock_file())
    begin, end = (int(gguf.field(f"tokenizer.ggml.{name}_token_id")) for name in ("bos", "eos"))
    _write_json(folder / "config.json", {**source.config, "bos_token_id": begin, "eos_token_id": end})
    tokens = gguf.field("tokenizer.ggml.tokens")
    # The bundle's tokenizer knows no control tokens, so that no text can become one. A chat needs them.
    control = [
        {"id": id, "content": tokens[id], "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for id in source.control_ids
    ]
    _write_json(folder / "tokenizer.json", {**source.tokenizer, "added_tokens": control})
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": source.config["max_position_embeddings"],
            "bos_token": tokens[begin],
            "eos_token": tokens[end],
            "chat_template": gguf.field("tokenizer.chat_template"),
        },
    )
    tensors = {name: source.weights.get(name) for name in source.weights.names()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def export(out: Path = OUT, python: Path | None = None) -> Path:
    """Make the export in the folder `out`, which appears when it is whole.

    Args:
        python: of an environment that has what exporter.txt names; None makes one.
    """
    work = out.with_name(f"{out.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    checkpoint, made = work / "checkpoint", work / "made"
    interpreter = python or _environment(out.with_name("exporter"))
    _say("writing the weights")
    source = load_source(STOCK_MODEL)
    write_checkpoint(source, checkpoint)
    (made / "onnx").mkdir(parents=True)
    # Embedding and head are one matrix in this model, and in its fp32 file. Quantised, each has its own.
    for shared, name in ((True, "model"), (False, "model_quantized")):
        _say(f"exporting {name}.onnx")
        built = work / name
        options = ["prune_lm_head=true", f"shared_embeddings={str(shared).lower()}"]
        builder = [
            "-m",
            "onnxruntime_genai.models.builder",
            "-i",
            checkpoint,
            "-o",
            built,
            "-c",
            work / "cache",
        ]
        _run(interpreter, *builder, "-p", "fp32", "-e", "cpu", "--extra_options", *options)
        target = made / "onnx" / f"{name}.onnx"
        _run(interpreter, "-c", _FINISH, built / "model.onnx", source.config["head_dim"], target, not shared)
    for name in FILES[:3]:
        shutil.copy(checkpoint / name, made / name)
    shutil.rmtree(out, ignore_errors=True)
    made.rename(out)
    shutil.rmtree(work)
    return out


def _environment(folder: Path) -> Path:
    """The Python of the exporter's environment, made when it is not there yet."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (folder / "installed").is_file():
        _say("installing the exporter (about 1 GB, once)")
        venv.create(folder, with_pip=True, clear=True)
        _run(python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS)
        (folder / "installed").touch()
    return python


def _run(python: Path, *arguments: object) -> None:
    command = [str(python), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExportError(
            f"`{' '.join(command[:4])} …` ended with status {done.returncode}:\n{done.stderr[-2000:]}",
            command=command,
            exit_status=done.returncode,
        )


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """The command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--python", type=Path, help="an interpreter that has what exporter.txt names")
    try:
        print(export(python=parser.parse_args().python))
    except TypedecideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
