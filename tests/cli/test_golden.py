"""Released words of the bundled sample under a fixed key: any change of algorithm, noise or sampling shows here."""

import hashlib
import json
from pathlib import Path

import pytest

import dpbeam
from dpbeam.cli import main

SAMPLE = Path(dpbeam.__file__).parent / "data" / "wordnet_glosses.txt.gz"
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def released(method: list[str], folder: Path) -> dict:
    out = folder / "words"
    flags = [
        "--lowercase",
        "--epsilon=1",
        "--delta=1e-6",
        "--insecure_test_key=901d",
        "--quiet",
        "--output_format=text",
    ]
    assert main(["select", f"--input={SAMPLE}", f"--output={out}", *flags, *method]) == 0
    data = Path(f"{out}-00000-of-00001.txt").read_bytes()
    return {"items": data.count(b"\n"), "sha256": hashlib.sha256(data).hexdigest()}


FIRST, *OTHERS = GOLDEN


@pytest.mark.parametrize("method", OTHERS)
def test_released_words(method, tmp_path):
    assert released(method.split(), tmp_path) == GOLDEN[method]


@pytest.mark.usefixtures("beams_runner")
def test_released_words_on_beams_runner(tmp_path):
    assert released(FIRST.split(), tmp_path) == GOLDEN[FIRST]
