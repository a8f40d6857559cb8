"""Writes tests/fixtures/qwen3-onnx: the qwen3 fixture as a community export, as onnx-community/Qwen3-0.6B-ONNX has it.

Run once, by hand, after make_fixtures.py, in an environment of its own; what it writes is committed:

    python -m venv /tmp/exportvenv
    /tmp/exportvenv/bin/pip install onnxruntime-genai==0.18.0 torch==2.13.0 transformers==5.24.0 onnx-ir==1.1.0 onnx
    /tmp/exportvenv/bin/python tests/make_export.py [MODEL_FOLDER OUT]

The exporter is ONNX Runtime GenAI's model builder. Both graphs have GroupQueryAttention and the whole vocabulary's
logits:

    onnx/model.onnx        float32, weights in model.onnx_data; rotary embedding by position_ids
    onnx/model_fp16.onnx   float16 with its caches, weights inside; rotary embedding within attention, no position_ids
    onnx/model_q4.onnx     4-bit weights; only where the folders are named
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import onnx
from onnxruntime_genai.models.builder import create_model, parse_extra_options  # isort: split

# The builder puts its own folder on the path.
from builders.base import Model

FIXTURES = Path(__file__).parent / "fixtures"
POSITIONS = 512


SEPARATE_ROPE = "position_ids"


def export(source: Path, target: Path, precision: str, provider: str, external: bool, *how: str) -> None:
    """One graph; the exporter's own names of files become those of the community's layout."""
    # What the builder does for DirectML only.
    Model.is_fused_rope_supported = lambda self: SEPARATE_ROPE not in how
    extra = [one for one in how if one != SEPARATE_ROPE]
    with tempfile.TemporaryDirectory() as temporary:
        built, cache = str(Path(temporary) / "out"), str(Path(temporary) / "cache")
        options = parse_extra_options(None, str(source), built, precision, provider, cache, extra)
        create_model(None, str(source), built, precision, provider, cache, **options)
        model = onnx.load(Path(built) / "model.onnx")
    if external:
        # onnx would append to a file that is there.
        target.with_name(f"{target.name}_data").unlink(missing_ok=True)
        onnx.save(model, target, save_as_external_data=True, location=f"{target.name}_data")
    else:
        onnx.save(model, target)


def main(folder: Path | None = None, out: Path | None = None) -> None:
    """The fixture, or the export of a model folder."""
    with tempfile.TemporaryDirectory() as temporary:
        source, target = folder or Path(temporary) / "model", out or FIXTURES / "qwen3-onnx"
        if folder is None:
            shutil.copytree(FIXTURES / "qwen3", source)
            config = json.loads((source / "config.json").read_text("utf-8"))
            config["max_position_embeddings"] = POSITIONS
            (source / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", "utf-8")
        (target / "onnx").mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "tokenizer.json"):
            shutil.copyfile(source / name, target / name)
        graphs = target / "onnx"
        export(source, graphs / "model.onnx", "fp32", "cpu", True, SEPARATE_ROPE, "fuse_qkv=false")
        # Norms of Q and K within attention are too new for most exports that there are.
        export(source, graphs / "model_fp16.onnx", "fp16", "cuda", False, "fuse_qk_norm_gqa=false")
        if folder is not None:
            export(source, graphs / "model_q4.onnx", "int4", "cpu", True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
