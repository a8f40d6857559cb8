"""Reads a bundle folder: its manifest, and the files that the manifest names.

Knows files and hashes; knows no tensors and no questions. It writes nothing: `pybuild` makes bundles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from typedecide.errors import BundleError, IntegrityError
from typedecide.shallow import Shallow

SCHEMA = 1
"""The manifest schema that this version reads."""

MANIFEST = "manifest.json"

_READ_SIZE = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """One external-data file of a graph: the name the graph knows it by, and the shards it is split into."""

    path: str
    bytes: int
    shards: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """One weight format of a bundle.

    `graphs` maps a variant name (`gqa`, `explicit`) to the path of its graph; `drift` is what the format
    costs in option probability against fp32; `golden` holds the cases of the start-up self-test.
    """

    name: str
    graphs: Mapping[str, str]
    data: tuple[DataFile, ...]
    bytes: int
    drift: Mapping[str, Any]
    golden: Sequence[Mapping[str, Any]]

    @property
    def processor_variant(self) -> str:
        """The variant that processors run: `explicit`, or of a stock export the one that it has."""
        return next((one for one in ("explicit", "gqa") if one in self.graphs), "explicit")


@dataclass(frozen=True)
class FileEntry:
    """The size and hash that the manifest promises for one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Damage:
    """A file that is not what the manifest says: `expected` and `found` are sizes, hashes, or `missing`."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: typed access to `manifest.json` and to the files next to it.

    >>> bundle = Bundle.open("dist")             # doctest: +SKIP
    >>> bundle.default_format                    # doctest: +SKIP
    'int8'
    """

    root: Path
    manifest: Mapping[str, Any]
    formats: Mapping[str, Format]
    files: Mapping[str, FileEntry]

    @classmethod
    def open(cls, path: str | Path) -> Bundle:
        """Open the bundle in folder `path`; a `BundleError` says what is missing or malformed."""
        root = Path(path)
        manifest = _read_manifest(root)
        fields = _Fields(root / MANIFEST, manifest)
        schema = fields.get("schema", int)
        if schema != SCHEMA:
            raise BundleError(
                f"{root / MANIFEST} has schema {schema}; this version of typedecide reads schema {SCHEMA}.",
                path=str(root / MANIFEST),
                schema=schema,
                supported=SCHEMA,
            )
        bundle = cls(root=root, manifest=manifest, formats=_formats(fields), files=_files(fields))
        bundle._validate(fields)
        return bundle

    def _validate(self, fields: _Fields) -> None:
        """Check now what later code relies on, so that a malformed manifest fails here and by name."""
        for name in ("model", "limits", "prompt"):
            fields.get(name, dict)
        fields.get("labels", list)
        _relative(fields, fields.get("tokenizer", str), "tokenizer")
        default = fields.get("default_format", str)
        if default not in self.formats:
            raise fields.error("default_format", default, f"is not one of {', '.join(self.formats)}")
        fields.child("limits").get("context", int)
        model = fields.child("model")
        for name in ("name", "licence"):
            model.get(name, str)
        model.child("shape").get("layers", int)
        Shallow.from_manifest(self.manifest)
        model.get("control_ids", list)
        fields.child("selftest").get("tolerance", float)
        if "calibration" in self.manifest:
            fields.child("calibration").get("format", str)

    @property
    def model(self) -> Mapping[str, Any]:
        """The model's name, licence and shape."""
        return _mapping(self.manifest["model"])

    @property
    def shallow(self) -> Shallow | None:
        """How the model is shallow, None where it is not."""
        return Shallow.from_manifest(self.manifest)

    @property
    def stock(self) -> bool:
        """Whether the graphs are a community's export, run as they are."""
        return bool(self.manifest.get("stock", False))

    @property
    def prompt(self) -> Mapping[str, Any]:
        """The prompt's template strings and first ids."""
        return _mapping(self.manifest["prompt"])

    @property
    def labels(self) -> Sequence[Mapping[str, Any]]:
        """The option labels, each with its `text` and token `id`."""
        labels: Sequence[Mapping[str, Any]] = self.manifest["labels"]
        return labels

    @property
    def limits(self) -> Mapping[str, Any]:
        """`context`, `max_options` and `max_levels`."""
        return _mapping(self.manifest["limits"])

    @property
    def default_format(self) -> str:
        """The format that is used where none is asked for."""
        return str(self.manifest["default_format"])

    @property
    def tolerance(self) -> float:
        """How far an engine's golden label logits may be from the manifest's."""
        return float(self.manifest["selftest"]["tolerance"])

    @property
    def tokenizer_path(self) -> Path:
        """Where `tokenizer.json` is."""
        return self.root / str(self.manifest["tokenizer"])

    def tolerance_of(self, format: str) -> float:
        """That of a format, where it has one of its own."""
        return float(self.manifest["formats"][format].get("tolerance", self.tolerance))

    def format(self, name: str | None = None) -> Format:
        """The format called `name`, or the default one."""
        wanted = self.default_format if name is None else name
        if wanted not in self.formats:
            raise BundleError(
                f"The bundle {self.root} has no format {wanted!r}; it has {', '.join(self.formats)}.",
                path=str(self.root),
                format=wanted,
                formats=list(self.formats),
            )
        return self.formats[wanted]

    def graph_path(self, format: str | None, variant: str) -> Path:
        """Where the graph of this format and attention variant is."""
        entry = self.format(format)
        if variant not in entry.graphs:
            raise BundleError(
                f"Format {entry.name!r} of {self.root} has no graph variant {variant!r};"
                f" it has {', '.join(entry.graphs)}.",
                path=str(self.root),
                variant=variant,
                variants=list(entry.graphs),
            )
        return self.root / entry.graphs[variant]

    def weights(self, format: str | None = None) -> list[tuple[str, memoryview]]:
        """The external-data files of a format, put together from their shards, by the name the graph uses."""
        return [(data.path, self._assemble(data)) for data in self.format(format).data]

    def _assemble(self, data: DataFile) -> memoryview:
        view, at = memoryview(bytearray(data.bytes)), 0
        for shard in data.shards:
            size = self._size(shard)
            if at + size > data.bytes:
                raise IntegrityError(
                    f"The shards of {data.path} hold more than its {data.bytes} bytes.",
                    path=data.path,
                    bytes=data.bytes,
                    shard=shard,
                )
            with (self.root / shard).open("rb") as file:
                while read := file.readinto(view[at:]):
                    at += read
        if at != data.bytes:
            raise IntegrityError(
                f"The shards of {data.path} hold {at} bytes instead of {data.bytes}.",
                path=data.path,
                expected=data.bytes,
                found=at,
            )
        return view

    def _size(self, path: str) -> int:
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            raise IntegrityError(f"{self.root / path} is missing.", path=path, found="missing") from None

    def damage(
        self, paths: Iterable[str] | None = None, progress: Callable[[str, int], None] | None = None
    ) -> list[Damage]:
        """Compare files with the sizes and hashes in the manifest: all of them, or those in `paths`.

        `progress(path, bytes)` is called after every block read.
        """
        found = []
        for path in self.files if paths is None else paths:
            entry = self._entry(path)
            if damage := _compare(self.root / path, path, entry, progress):
                found.append(damage)
        return found

    def check(self, paths: Iterable[str] | None = None) -> None:
        """Raise an `IntegrityError` that lists every file which `damage` finds."""
        if found := self.damage(paths):
            raise IntegrityError(
                f"The bundle {self.root} is damaged: " + "; ".join(str(one) for one in found),
                path=str(self.root),
                damage=[{"path": d.path, "expected": d.expected, "found": d.found} for d in found],
            )

    def _entry(self, path: str) -> FileEntry:
        if path not in self.files:
            raise BundleError(f"{self.root / MANIFEST} lists no file {path!r}.", path=path)
        return self.files[path]


class _Fields:
    """Reads typed fields of a JSON object, and names file, field and value where one is wrong."""

    def __init__(self, file: Path, value: Mapping[str, Any], at: str = "") -> None:
        self.file, self.value, self.at = file, value, at

    def error(self, key: str | int, value: object, why: str) -> BundleError:
        where = f"{self.at}{key}"
        return BundleError(
            f"{self.file}: field {where!r} {why}: {value!r}.", path=str(self.file), field=where, value=value
        )

    def get(self, key: str, kind: type) -> Any:
        if key not in self.value:
            raise self.error(key, None, "is missing")
        value = self.value[key]
        # JSON has one kind of number; and bool is an int to Python, but never meant here.
        kinds = (int, float) if kind is float else (kind,)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise self.error(key, value, f"is not {_KIND_NAMES[kind]}")
        return value

    def child(self, key: str) -> _Fields:
        return _Fields(self.file, self.get(key, dict), f"{self.at}{key}.")

    def children(self, key: str) -> list[_Fields]:
        items: list[Any] = self.get(key, list)
        out = []
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                raise self.error(f"{key}[{index}]", item, "is not an object")
            out.append(_Fields(self.file, item, f"{self.at}{key}[{index}]."))
        return out


_KIND_NAMES = {int: "a whole number", float: "a number", str: "a string", dict: "an object", list: "a list"}


def _mapping(value: Any) -> Mapping[str, Any]:
    mapping: Mapping[str, Any] = value
    return mapping


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{root} is no bundle: there is no {path}. Make one with `python -m pybuild bundle`.",
            path=str(path),
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} is not JSON: {error}.", path=str(path)) from error
    if not isinstance(manifest, dict):
        raise BundleError(f"{path} is not a JSON object but {type(manifest).__name__}.", path=str(path))
    return manifest


def _relative(fields: _Fields, path: str, key: str) -> str:
    """A path of the manifest, which must stay inside the bundle."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise fields.error(key, path, "is not a path inside the bundle")
    return path


def _formats(fields: _Fields) -> dict[str, Format]:
    formats = fields.child("formats")
    if not formats.value:
        raise fields.error("formats", {}, "is empty")
    return {name: _format(name, formats.child(name)) for name in formats.value}


def _format(name: str, fields: _Fields) -> Format:
    graphs = fields.child("graphs")
    return Format(
        name=name,
        graphs={key: _relative(graphs, graphs.get(key, str), key) for key in graphs.value},
        data=tuple(_data_file(child) for child in fields.children("data")),
        bytes=fields.get("bytes", int),
        drift=fields.get("drift", dict),
        golden=[child.value for child in fields.children("golden")],
    )


def _data_file(fields: _Fields) -> DataFile:
    shards = fields.get("shards", list)
    for index, shard in enumerate(shards):
        if not isinstance(shard, str):
            raise fields.error(f"shards[{index}]", shard, "is not a string")
        _relative(fields, shard, f"shards[{index}]")
    return DataFile(fields.get("path", str), fields.get("bytes", int), tuple(shards))


def _files(fields: _Fields) -> dict[str, FileEntry]:
    files = fields.child("files")
    return {_relative(files, path, path): _file_entry(files.child(path)) for path in files.value}


def _file_entry(fields: _Fields) -> FileEntry:
    return FileEntry(bytes=fields.get("bytes", int), sha256=fields.get("sha256", str))


def _compare(
    file: Path, path: str, entry: FileEntry, progress: Callable[[str, int], None] | None
) -> Damage | None:
    if not file.is_file():
        return Damage(path, f"{entry.bytes} bytes", "missing")
    size = file.stat().st_size
    if size != entry.bytes:
        return Damage(path, f"{entry.bytes} bytes", f"{size} bytes")
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_READ_SIZE):
            digest.update(block)
            if progress:
                progress(path, len(block))
    found = digest.hexdigest()
    return None if found == entry.sha256 else Damage(path, f"sha256 {entry.sha256}", f"sha256 {found}")
