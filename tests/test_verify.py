"""`python -m pybuild verify`: passes on the real bundle, and sees each kind of planted fault."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybuild import attacks, verify
from typedecide.bundle import MANIFEST, Bundle
from typedecide.errors import UnsupportedError
from typedecide.native import TextTokenizer

ROOT = Path(__file__).resolve().parents[1]
TOKENIZER = "model/tokenizer.json"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pybuild", "verify", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.fixture
def copied(dist: Path, tmp_path: Path) -> Path:
    """A copy of the default bundle; files are shared until one is replaced."""

    def link(source: str, target: str) -> str:
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copyfile(source, target)
        return target

    target = tmp_path / "dist"
    shutil.copytree(dist, target, copy_function=link)
    return target


def replace(path: Path, data: bytes) -> None:
    """Put new bytes in place of a file that may be shared: writing to it would change the original."""
    path.unlink()
    path.write_bytes(data)


def edit_manifest(dist: Path, change: Callable[[dict[str, Any]], None]) -> Bundle:
    manifest = json.loads((dist / MANIFEST).read_bytes())
    change(manifest)
    replace(dist / MANIFEST, json.dumps(manifest).encode())
    return Bundle.open(dist)


def edit_tokenizer(dist: Path, change: Callable[[dict[str, Any]], None]) -> Bundle:
    """Change the tokenizer and its hash in the manifest, so that nothing but its behaviour gives it away."""
    tokenizer = json.loads((dist / TOKENIZER).read_bytes())
    change(tokenizer)
    data = json.dumps(tokenizer, ensure_ascii=False).encode()
    replace(dist / TOKENIZER, data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return edit_manifest(dist, lambda manifest: manifest["files"].update({TOKENIZER: entry}))


def test_the_default_bundle_passes_with_full_counts(dist: Path) -> None:
    done = run(dist)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5000 pairs" in done.stdout and "10000 strings" in done.stdout
    graphs = len(Bundle.open(dist).format().graphs)
    assert f"{graphs} graphs" in done.stdout and done.stdout.count("none") == 4


def test_attacks_cover_every_kind_equally_and_are_reproducible() -> None:
    pairs = list(attacks.pairs(1900, seed=3, specials=["<|im_end|>"]))
    assert pairs == list(attacks.pairs(1900, seed=3, specials=["<|im_end|>"]))
    assert pairs != list(attacks.pairs(1900, seed=4, specials=["<|im_end|>"]))
    kinds = Counter(pair.kind for pair in pairs)
    assert set(kinds.values()) == {100} and len(kinds) == 19
    states = [pair.state for pair in pairs]
    assert "" in states and any(state and not state.strip() for state in states)
    assert sum("<|im_end|>" in state for state in states) > 20
    for ending in (" ", "\n", "\r\n", "\t", "\u0301", "\u200d"):
        assert any(state.endswith(ending) for state in states), ending
    assert max(len(pair.criterion.options) for pair in pairs) == 255
    everything = "".join(states) + "".join(pair.criterion.text for pair in pairs)
    everything.encode("utf-8")  # no lone surrogates
    texts = list(attacks.strings(3000, seed=3))
    assert len(set(texts)) == 3000 and texts == list(attacks.strings(3000, seed=3))


def test_special_token_text_stays_text(dist: Path) -> None:
    bundle = Bundle.open(dist)
    tokenizer = TextTokenizer.from_file(bundle.tokenizer_path)
    vocabulary = verify.Vocabulary.read(bundle)
    for text in ("<|im_end|>", "<|endoftext|>", "<|im_start|>system\n", "a<|im_end|>b"):
        ids = tokenizer.encode(text)
        assert len(ids) > 2 and set(ids) <= vocabulary.plain
    assert not vocabulary.plain & set(bundle.model["control_ids"])


def test_a_changed_byte_is_seen(copied: Path) -> None:
    shard = Bundle.open(copied).format().data[0].shards[-1]
    data = bytearray((copied / shard).read_bytes())
    data[12345] ^= 0x40
    replace(copied / shard, bytes(data))
    (copied / "prompt.js").unlink()
    done = run(copied, "--states", "19", "--strings", "19")
    assert done.returncode == 1
    assert f"files: {shard}: expected sha256" in done.stdout
    assert "files: prompt.js: expected" in done.stdout and "found missing" in done.stdout
    # Damaged weights are not run, and that is said too.
    assert "golden values: int8, gqa graph: cannot be run" in done.stdout


def test_a_wrong_golden_value_is_seen(copied: Path) -> None:
    def spoil(manifest: dict[str, Any]) -> None:
        manifest["formats"]["int8"]["golden"][1]["logits"][0][2] += 0.02

    bundle = edit_manifest(copied, spoil)
    check = verify.check_golden(bundle)
    name = bundle.format().golden[1]["name"]
    assert len(check.failures) == len(bundle.format().graphs) and all(
        name in failure for failure in check.failures
    )
    assert "logits differ by 2.0" in check.failures[0]
    done = run(copied, "--states", "19", "--strings", "19")
    assert done.returncode == 1 and f"golden values: int8, explicit graph, case '{name}'" in done.stdout


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_golden_value_that_is_no_number_is_seen(copied: Path, bad: float) -> None:
    def spoil(manifest: dict[str, Any]) -> None:
        manifest["formats"]["int8"]["golden"][0]["logits"][0][0] = bad

    assert verify.check_golden(edit_manifest(copied, spoil)).failures


def test_missing_golden_values_are_seen(copied: Path) -> None:
    bundle = edit_manifest(copied, lambda manifest: manifest["formats"]["int8"].update(golden=[]))
    assert verify.check_golden(bundle).failures == ["int8: the manifest holds no golden values"]


def test_tokenizers_that_differ_are_seen(copied: Path) -> None:
    def spoil(tokenizer: dict[str, Any]) -> None:
        # Python and JavaScript disagree on what `\s` is: U+FEFF and U+0085.
        tokenizer["pre_tokenizer"] = {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
        }  # fmt: skip

    bundle = edit_tokenizer(copied, spoil)
    assert verify.check_files(bundle).failures == []
    check = verify.check_tokenizer(bundle, TextTokenizer.from_file(bundle.tokenizer_path), 3000)
    assert check.failures
    assert all("in Python and" in failure for failure in check.failures)
    assert any("\\ufeff" in failure or "\\x85" in failure for failure in check.failures)
    done = run(copied, "--states", "19", "--strings", "3000")
    assert done.returncode == 1 and "in the page" in done.stdout


def test_control_tokens_that_text_can_form_are_seen(copied: Path) -> None:
    def spoil(tokenizer: dict[str, Any]) -> None:
        tokenizer["model"]["vocab"]["<|im_end|>"] = 2
        tokenizer["added_tokens"].append(
            {"id": 2, "content": "<|im_end|>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
        )  # fmt: skip

    bundle = edit_tokenizer(copied, spoil)
    check = verify.check_trim(bundle, TextTokenizer.from_file(bundle.tokenizer_path), 950)
    assert check.failures
    assert all("control token 2 '<|im_end|>'" in failure for failure in check.failures)


def test_a_trim_that_does_not_hold_is_seen(copied: Path) -> None:
    # Without the line break the criterion's first word merges with the state's last one, beyond one token.
    bundle = edit_manifest(
        copied, lambda manifest: manifest["prompt"].update(tail="{criterion}\nOptions:\n{options}Answer:")
    )
    check = verify.check_trim(bundle, TextTokenizer.from_file(bundle.tokenizer_path), 950)
    assert check.failures
    assert all("in the prefix and" in failure and ": state " in failure for failure in check.failures)
    done = run(copied, "--states", "950", "--strings", "19")
    assert done.returncode == 1 and "trim: " in done.stdout


def test_a_page_tokenizer_that_does_not_start_is_an_error(copied: Path) -> None:
    replace(copied / verify.TOKENIZER_MODULE, b"throw new Error('planted');\n")
    with pytest.raises(UnsupportedError, match="planted"):
        list(verify.page_ids(Bundle.open(copied), ["a", "b"]))


def test_no_bundle(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2 and "manifest.json" in done.stderr
