"""`python -m pybuild bundle`: graph, tokenizer, runtime and page become a folder that any static host serves.

The same inputs give the same bytes. Models are built once and kept (see artifacts.py); the folder is put together anew
only when something in it changes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from pybuild import editor, icons, npm, pyodide, wheel
from pybuild.artifacts import ROOT, Build, Built, ModelBuild
from pybuild.golden import TOLERANCE
from pybuild.progress import Steps
from pybuild.quantize import DEFAULT_FORMAT, FORMATS
from pybuild.shallow import Measured, path_of
from pybuild.sources import DEFAULT_MODEL, MODELS, STOCK_MODEL, Source, cut, load_source
from pybuild.stock import GRAPHS, StockBuild
from typedecide import __version__
from typedecide.bundle import MANIFEST, SCHEMA
from typedecide.calibration import Calibration
from typedecide.errors import UnsupportedError
from typedecide.inputs import read_json
from typedecide.options import readouts_of
from typedecide.orderings import DEFAULT_BUDGET
from typedecide.questions import MAX_LEVELS, MAX_OPTIONS
from typedecide.shallow import ANCHORS, DEFAULT_ANCHOR, Shallow, words
from typedecide.static_server import POLICY

WEB = ROOT / "web"

SERVICE_WORKER = "sw.js"

ON_USE = (f"{pyodide.FOLDER}/", f"{editor.FOLDER}/")
"""Folders whose files the service worker keeps only once the page has asked for them."""

PACKAGE_ONLY = ("react.js", "types.js")
"""Files that only users of the npm package need."""

CALIBRATION = "calibration.json"
"""The file beside a model of this checkout that its bundles take in."""

RUN_TOKENS = {"wasm": 256, "webgpu": 512, "native": 256}
"""Tokens of one packed run on each device: large enough for fast matrix products, small enough to stream answers and to
be aborted. On processors larger runs are no faster for each token, and each keeps an abort waiting for longer.
"""

ORT_BUILDS = {
    "jspi": ("ort.jspi.min.mjs", "ort-wasm-simd-threaded.jspi"),
    "webgpu": ("ort.webgpu.min.mjs", "ort-wasm-simd-threaded.asyncify"),
    "wasm": ("ort.wasm.min.mjs", "ort-wasm-simd-threaded"),
}
"""ONNX Runtime Web builds that the page can need: module, and the stem of its loader and WebAssembly file."""

VENDORED = {
    "tokenizers": ("@huggingface/tokenizers", ("dist/tokenizers.min.mjs",)),
    "uplot": ("uplot", ("dist/uPlot.esm.js", "dist/uPlot.min.css")),
}
"""Packages that the page uses, by their folder under vendor/: name on npm, and the files taken besides the licence."""

UMD = {"papaparse": ("papaparse", "papaparse.min.js")}
"""Those that come as scripts only, and are made modules: name on npm, and the script."""


def build(
    out: Path,
    source: str = DEFAULT_MODEL,
    formats: Sequence[str] | None = None,
    layers: int | None = None,
    context: int | None = None,
    force: bool = False,
    quiet: bool = False,
    calibration: Path | Literal[False] | None = None,
    shallow: int | Literal["auto"] | None = None,
    anchor: str | None = None,
    from_onnx: Path | None = None,
    python: bool = True,
) -> Path:
    """Build a bundle into the folder `out`, and return it.

    Args:
        source: the default or the stock model's name, a folder with an adapter, a Hugging Face folder, a GGUF file or
            a hub id.
        formats: weight formats to include; the first one is the default. None: int8, or of an export all that it has.
        layers: keep only the first layers (for tests on slow devices); None keeps all.
        context: positions; None keeps the model's own number.
        force: build everything anew.
        quiet: no progress on standard error.
        calibration: a file that `python -m typedecide calibrate` wrote for this model and one of the formats, or False
            for none; None takes the one that comes with the model, where one of the formats is its own.
        shallow: the layers that texts go through; as many as the model has: all; "auto": what the gate let through for
            this model (`python -m bench.gate`), all where it let none through. None: all, or those that the model was
            trained for, from which no other choice may differ.
        anchor: which of the prompt's first tokens go through all layers of a shallow model: `none`, `bos` (one) or
            `instruction` (those before every text); None takes the last.
        from_onnx: the folder of a community export, whose graphs are taken as they are, in place of `source`.
        python: whether Pyodide and typedecide's wheel go in, for Python in the browser.
    """
    with Steps(quiet) as steps:
        model: Build
        if from_onnx is None:
            model = _from_weights(source, formats, layers, context, force, shallow, anchor, steps)
        else:
            ours = {"--layers": layers, "--shallow": shallow, "--anchor": anchor}
            model = _from_export(from_onnx, formats, context, force, ours, steps)
        wanted = model.formats if isinstance(model, StockBuild) else formats or (DEFAULT_FORMAT,)
        built = {name: model.format(name) for name in dict.fromkeys(wanted)}
        taken = _calibration(calibration, model, list(built))
        inputs = _inputs(model, built, taken, python)
        if not force and _up_to_date(out, inputs):
            return out
        _assemble(out, model, built, taken, python, inputs, steps)
    return out


def _from_export(
    folder: Path,
    formats: Sequence[str] | None,
    context: int | None,
    force: bool,
    ours: Mapping[str, Any],
    steps: Steps,
) -> StockBuild:
    """A community export; UnsupportedError where an option that only graphs of our own can follow has a value."""
    for option, value in ours.items():
        if value is not None:
            raise UnsupportedError(
                f"{option} is not for exports: their graphs are taken as they are", option=option, value=value
            )
    return StockBuild(folder, formats, context, steps, force)


def _from_weights(
    source: str,
    formats: Sequence[str] | None,
    layers: int | None,
    context: int | None,
    force: bool,
    shallow: int | Literal["auto"] | None,
    anchor: str | None,
    steps: Steps,
) -> ModelBuild:
    """A model whose graphs are made here."""
    for name in formats or ():
        if name not in FORMATS:
            raise UnsupportedError(f"there is no format {name!r}; known: {', '.join(FORMATS)}", format=name)
    loaded = load_source(source)
    if anchor is not None and not isinstance(shallow, int) and loaded.shallow is None:
        raise UnsupportedError(
            f"the anchor {anchor!r} is for shallow models: say --shallow K too", anchor=anchor
        )
    if layers is not None:
        loaded = cut(loaded, layers)
    return ModelBuild(loaded, context, steps, force, *_depth(loaded, shallow, anchor))


def _depth(
    source: Source, shallow: int | Literal["auto"] | None, anchor: str | None
) -> tuple[int | None, str, float | None]:
    """Layers that texts go through, the anchor, and how often such a model was found to answer like the whole one."""
    measured = Measured.find(source)
    if source.shallow is not None and shallow != "auto":
        trained, its_anchor = source.shallow
        if (shallow or trained, anchor or its_anchor) != source.shallow:
            raise UnsupportedError(
                f"{source.name} was trained to be shallow: {trained} layers, anchor {its_anchor}; leave --shallow and"
                " --anchor out",
                model=source.name,
                shallow=shallow,
                anchor=anchor,
            )
        shallow, anchor = source.shallow
    if shallow == "auto":
        if measured is None:
            raise UnsupportedError(
                f"nobody has measured how shallow {source.name} may be (there is no {path_of(source.name)} of"
                f" {source.origin}): run `python -m bench shallow_quality`, and `python -m bench.gate` on its results",
                model=source.name,
                origin=source.origin,
            )
        shallow, anchor = measured.chosen or (None, None)
    used = anchor or DEFAULT_ANCHOR
    agreement = None if measured is None or shallow is None else measured.agreements.get((shallow, used))
    return shallow, used, agreement


def _calibration(
    given: Path | Literal[False] | None, model: Build, formats: Sequence[str]
) -> Mapping[str, Any] | None:
    """The calibration to take in, checked against the model; UnsupportedError where it is another's."""
    path = MODELS / model.source.name / CALIBRATION if given is None else given
    if path is False or (given is None and not path.is_file()):
        return None
    found = Calibration.parse(read_json(str(path)))
    if found.format not in formats:
        if given is None:
            return None
        raise UnsupportedError(
            f"{path} is for the format {found.format}; this bundle has {', '.join(formats)}.",
            path=str(path),
            format=found.format,
            formats=[*formats],
        )
    if given is None and found.shallow is None and model.shallow is not None:
        return None
    manifest = {"model": _model_facts(model), "prompt": model.prompt_spec}
    try:
        found.check(manifest, found.format)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{path}: {error.message} (`--calibration none` builds without.)", path=str(path), **error.data
        ) from error
    if found.readout not in (known := readouts_of(manifest)):
        raise UnsupportedError(
            f"{path} is for the {found.readout} readout; this model has {', '.join(known)}.",
            path=str(path),
            readout=found.readout,
        )
    return found.document


def _inputs(
    model: Build, built: dict[str, Built], calibration: Mapping[str, Any] | None, python: bool
) -> str:
    """Hash of all that goes into the folder besides the model itself, and of the model's key."""
    digest = hashlib.sha256()
    digest.update(
        json.dumps(
            [
                *(model.key, model.shallow and model.shallow.spec, list(built), __version__),
                *(model.source.licence, model.source.released, calibration, POLICY, _gate(model), python),
            ]
        ).encode()
    )
    sources: tuple[Path, ...] = (Path(__file__), Path(icons.__file__), ROOT / "package-lock.json")
    if python:
        sources += (Path(pyodide.__file__), Path(editor.__file__), *editor.SOURCES)
        sources += (Path(wheel.__file__), ROOT / "pyproject.toml", ROOT / "README.md", *wheel.sources())
    for path in (*sources, *_web_files()):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _up_to_date(out: Path, inputs: str) -> bool:
    try:
        manifest = json.loads((out / MANIFEST).read_text("utf-8"))
        if manifest["build"]["inputs"] != inputs:
            return False
        return all((out / p).stat().st_size == f["bytes"] for p, f in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _assemble(
    out: Path,
    model: Build,
    built: dict[str, Built],
    calibration: Mapping[str, Any] | None,
    python: bool,
    inputs: str,
    steps: Steps,
) -> None:
    """Put the folder together beside `out`, then swap it in."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
        folder = Path(temporary) / "dist"
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "tokenizer.json").write_text(model.tokenizer_json, "utf-8")
        formats = {name: _copy_format(folder, one) for name, one in built.items()}
        with steps.step("page and runtime", 1 + len(ORT_BUILDS) + python) as advance:
            _copy_web(folder)
            advance()
            interpreter = None
            if python:
                interpreter = pyodide.copy(folder)
                editor.copy(folder)
                advance()
            builds = {}
            for name in ORT_BUILDS:
                builds[name] = _copy_runtime(folder, name)
                advance()
        manifest = _manifest(model, formats, calibration, builds, interpreter, inputs)
        paths = sorted(p for p in folder.rglob("*") if p.is_file())
        with steps.step("hashes", len(paths)) as advance:
            for path in paths:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                manifest["files"][path.relative_to(folder).as_posix()] = {
                    "bytes": path.stat().st_size,
                    "sha256": digest,
                }
                advance()
        _write_service_worker(folder, manifest)
        text = json.dumps(manifest, ensure_ascii=False, indent=1)
        (folder / MANIFEST).write_text(text + "\n", "utf-8")
        shutil.rmtree(out, ignore_errors=True)
        folder.rename(out)


def _model_facts(model: Build) -> dict[str, Any]:
    shape = model.shape
    return {
        "name": model.source.name,
        "licence": model.source.licence,
        "origin": model.source.origin,
        **({"released": model.source.released} if model.source.released else {}),
        **model.sizes,
        "shape": {
            "layers": shape.layers,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "context": shape.context,
        },
        "control_ids": list(model.source.control_ids),
        **({} if model.pointer_width is None else {"pointer_width": model.pointer_width}),
        **({} if model.shallow is None else {"shallow": model.shallow.spec}),
    }


def _gate(model: Build) -> Mapping[str, Any] | None:
    """What the gate found of a model's shallow forms, also if it let none through; None where nobody measured."""
    measured = Measured.find(model.source)
    return None if measured is None else measured.gate


def _manifest(
    model: Build,
    formats: dict[str, Any],
    calibration: Mapping[str, Any] | None,
    builds: dict[str, Any],
    python: dict[str, Any] | None,
    inputs: str,
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "typedecide": __version__,
        **({"stock": True} if model.stock else {}),
        "build": {"inputs": inputs},
        "model": _model_facts(model),
        "limits": {
            "context": model.shape.context,
            "max_options": min(MAX_OPTIONS, len(model.labels)),
            "max_levels": min(MAX_LEVELS, len(model.labels)),
            "rotation_budget": DEFAULT_BUDGET,
            "run_tokens": RUN_TOKENS,
        },
        "readout": model.profile.readout,
        **({} if calibration is None else {"calibration": calibration}),
        **({} if (gate := _gate(model)) is None else {"shallow_gate": gate}),
        "prompt": model.prompt_spec,
        "labels": model.labels,
        "tokenizer": "model/tokenizer.json",
        "default_format": next(iter(formats)),
        "formats": formats,
        "selftest": {"tolerance": TOLERANCE},
        "runtime": {"ort": npm.version("onnxruntime-web"), "builds": builds},
        **({} if python is None else {"python": python}),
        "files": {},
    }


def _copy_format(folder: Path, built: Built) -> dict[str, Any]:
    """Copy a format's files; its manifest entry."""
    facts = built.facts
    graphs = {variant: f"model/{name}" for variant, name in facts["graphs"].items()}
    data = [{**d, "shards": [f"model/{s}" for s in d["shards"]]} for d in facts["data"]]
    for path in [*graphs.values(), *(s for d in data for s in d["shards"])]:
        shutil.copyfile(built.folder / Path(path).name, folder / path)
    return {
        "graphs": graphs,
        "data": data,
        "bytes": sum(d["bytes"] for d in data)
        or sum((built.folder / one).stat().st_size for one in facts["graphs"].values()),
        "drift": facts["drift"],
        "golden": facts["golden"],
        **{key: facts[key] for key in ("tolerance", "devices") if key in facts},
    }


def _web_files() -> list[Path]:
    files = (p for p in WEB.rglob("*") if p.is_file() and not p.name.startswith("."))
    return sorted(p for p in files if p.relative_to(WEB).as_posix() not in PACKAGE_ONLY)


def _copy_web(folder: Path) -> None:
    """The page and the library; the page's index.html lies at the root."""
    for path in _web_files():
        # Needs the hashes of all others.
        if path.name == SERVICE_WORKER:
            continue
        relative = path.relative_to(WEB)
        target = folder / ("index.html" if relative.as_posix() == "app/index.html" else relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for size in icons.SIZES:
        (folder / "app" / f"icon-{size}.png").write_bytes(icons.png(WEB / "app" / "icon.svg", size))
    for name, (package, files) in VENDORED.items():
        target = folder / "vendor" / name
        target.mkdir(parents=True)
        for file in (*files, "LICENSE"):
            shutil.copyfile(npm.package(package) / file, target / Path(file).name)
    for name, (package, file) in UMD.items():
        target = folder / "vendor" / name
        target.mkdir(parents=True)
        code = (npm.package(package) / file).read_text("utf-8")
        module = f"const module = {{}}, exports = {{}};\n{code}\nexport default module.exports;\n"
        (target / f"{name}.mjs").write_text(module, "utf-8")
        shutil.copyfile(npm.package(package) / "LICENSE", target / "LICENSE")


def _write_service_worker(folder: Path, manifest: dict[str, Any]) -> None:
    """web/sw.js behind what it has to know of the bundle, all of which also gives the bundle its version.

    The page's own files it fetches ahead; of ONNX Runtime Web only the build that the page comes to use. What parts of
    the page need that few open, it keeps once it was used.
    """
    files = {path: entry["sha256"] for path, entry in manifest["files"].items()}
    folders = ("app/", *(f"vendor/{name}/" for name in (*VENDORED, *UMD)))
    shell = {p: h for p, h in files.items() if "/" not in p or (p.startswith(folders) and "LICENSE" not in p)}
    builds = manifest["runtime"]["builds"]
    runtime = {
        name: {one[part]: files[one[part]] for part in ("module", "loader")} for name, one in builds.items()
    }
    code = (WEB / SERVICE_WORKER).read_text("utf-8")
    used = {p: h for p, h in files.items() if p.startswith(ON_USE)}
    facts = {"policy": POLICY, "shell": shell, "runtime": runtime, "used": used}
    version = hashlib.sha256(json.dumps([manifest, facts, code]).encode()).hexdigest()[:16]
    manifest["build"]["version"] = version
    text = f"self.BUNDLE = {json.dumps({'version': version, **facts})};\n{code}"
    (folder / SERVICE_WORKER).write_text(text, "utf-8")
    manifest["files"][SERVICE_WORKER] = {
        "bytes": len(text.encode()),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _copy_runtime(folder: Path, name: str) -> dict[str, str]:
    """One ONNX Runtime Web build, its WebAssembly compressed; its manifest entry.

    Static hosts often do not compress WebAssembly, and the three builds are 58 MB plain and 14 MB compressed. The name
    does not end in `.gz`: some servers take that for a content encoding, and browsers then unpack the file too early.
    """
    module, stem = ORT_BUILDS[name]
    dist, target = npm.package("onnxruntime-web") / "dist", folder / "vendor" / "ort"
    target.mkdir(parents=True, exist_ok=True)
    for file in (module, f"{stem}.mjs"):
        shutil.copyfile(dist / file, target / file)
    packed = gzip.compress((dist / f"{stem}.wasm").read_bytes(), 9, mtime=0)
    (target / f"{stem}.wasm.gzip").write_bytes(packed)
    return {
        "module": f"vendor/ort/{module}",
        "loader": f"vendor/ort/{stem}.mjs",
        "wasm": f"vendor/ort/{stem}.wasm.gzip",
    }


# -- the command ---------------------------------------------------------------------------------------------


def add_parser(subparsers: Any) -> None:
    """Add `bundle` and `formats` to the command line."""
    bundle = subparsers.add_parser(
        "bundle",
        help="build a bundle: a folder that any static host serves",
        description="Build a bundle: a folder that any static host serves.",
    )
    bundle.add_argument("--out", type=Path, default=Path("dist"), help="folder to write (default: dist)")
    bundle.add_argument(
        "--formats",
        help=f"weight formats, the default one first (default: {DEFAULT_FORMAT}; known: {', '.join(FORMATS)}; of an"
        " export: all that it has)",
    )
    bundle.add_argument(
        "--from-onnx",
        type=Path,
        metavar="DIR",
        help="take the graphs of a community export as they are, in place of --model: a folder with config.json,"
        f" tokenizer.json and {GRAPHS}/model*.onnx (as onnx-community/Qwen3-0.6B-ONNX); questions are then run one by"
        " one, and there is neither a pointer nor --shallow",
    )
    bundle.add_argument("--force", action="store_true", help="build everything anew")
    bundle.add_argument(
        "--calibration",
        metavar="FILE|none",
        help="temperatures and a threshold for abstaining, by `python -m typedecide calibrate` (default: those that"
        " come with the model)",
    )
    bundle.add_argument(
        "--shallow",
        type=_shallow_argument,
        metavar="K|auto",
        help="texts go through the first K layers only, and questions through all: a faster, smaller approximation;"
        " auto: as few as were found to be enough for this model (default: all layers)",
    )
    bundle.add_argument(
        "--anchor",
        choices=ANCHORS,
        help="what all layers of a shallow model see of the prompt before a question: nothing, its first token, or all"
        f" that stands before every text (default: {DEFAULT_ANCHOR})",
    )
    bundle.add_argument(
        "--no-python",
        action="store_true",
        help="leave out Python in the page (14 MB)",
    )
    bundle.set_defaults(func=run)
    formats = subparsers.add_parser(
        "formats",
        help="what each weight format of a model costs: size and drift",
        description="Build every weight format of a model, and print its size and its drift against fp32.",
    )
    formats.set_defaults(func=run_formats)
    for parser in (bundle, formats):
        parser.add_argument(
            "--model",
            default=DEFAULT_MODEL,
            help=f"{DEFAULT_MODEL} (default), {STOCK_MODEL} (the same, not tuned), an adapter's folder,"
            " a Hugging Face folder, a GGUF file or a hub id",
        )
        parser.add_argument("--layers", type=int, help="keep only the first layers of the model (for tests)")
        parser.add_argument("--context", type=int, help="positions (default: the model's own number)")


def run(args: argparse.Namespace) -> int:
    """`python -m pybuild bundle`."""
    out = build(
        args.out,
        args.model,
        args.formats and [f.strip() for f in args.formats.split(",")],
        args.layers,
        args.context,
        args.force,
        calibration=_calibration_argument(args.calibration),
        shallow=args.shallow,
        anchor=args.anchor,
        from_onnx=args.from_onnx,
        python=not args.no_python,
    )
    manifest = json.loads((out / MANIFEST).read_text("utf-8"))
    rows = {name: (entry["bytes"], entry["drift"]) for name, entry in manifest["formats"].items()}
    _print_formats(manifest["model"]["name"], rows)
    total = sum(f["bytes"] for f in manifest["files"].values())
    print(
        f"{out}: {len(manifest['files'])} files, {total / 1e6:.1f} MB, {_calibrated(manifest)}, {_shallow(manifest)}"
    )
    return 0


def _shallow_argument(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number of layers") from error


def _calibration_argument(text: str | None) -> Path | Literal[False] | None:
    if text is None:
        return None
    return False if text == "none" else Path(text)


def _calibrated(manifest: Mapping[str, Any]) -> str:
    one = manifest.get("calibration")
    return "not calibrated" if one is None else f"calibrated for {one['readout']} in {one['format']}"


def _shallow(manifest: Mapping[str, Any]) -> str:
    found, layers = Shallow.from_manifest(manifest), manifest["model"]["shape"]["layers"]
    return f"all {layers} layers" if found is None else words(found.facts(layers))


def run_formats(args: argparse.Namespace) -> int:
    """`python -m pybuild formats`."""
    loaded = load_source(args.model)
    if args.layers is not None:
        loaded = cut(loaded, args.layers)
    with Steps() as steps:
        model = ModelBuild(loaded, args.context, steps)
        built = {name: model.format(name).facts for name in FORMATS}
    rows = {n: (sum(d["bytes"] for d in facts["data"]), facts["drift"]) for n, facts in built.items()}
    _print_formats(model.source.name, rows)
    return 0


def _print_formats(model: str, rows: dict[str, tuple[int, dict[str, Any]]]) -> None:
    """A table of sizes and drifts, and a warning for each lossy format."""
    table = Table(title=f"{model}: weight formats, probability drift against fp32")
    for column in ("format", "MB", "prompts", "largest drift", "mean drift", "changed answers"):
        table.add_column(column, justify="left" if column == "format" else "right")
    for name, (size, cost) in rows.items():
        table.add_row(
            name,
            f"{size / 1e6:.1f}",
            str(cost["prompts"]),
            f"{cost['max']:.2g}",
            f"{cost['mean']:.2g}",
            str(cost["flips"]),
        )
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
    for name, (_, cost) in rows.items():
        if cost["large"]:
            print(
                f"warning: {name} changes option probabilities by up to {cost['max']:.2f} on this model;"
                " compare with another format before you rely on it",
                file=sys.stderr,
            )
