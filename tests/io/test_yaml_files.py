"""YAML is read as data: nothing that grows, hangs, or means another number elsewhere."""

import json
import os

import pytest
import yaml

from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.io.yaml_files import MAX_BYTES, MAX_DEPTH, Number, load

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
#: Content of a file -> what is said of it.
HOSTILE = {
    LAUGHS: ":2: aliases",
    "a: &a [*a]\n": ":1: aliases",
    "a: &a {b: 1}\nc:\n  <<: *a\n": ":3: merge keys",
    "a:\n  <<: {b: 1}\n": r":2: merge keys",
    "a: " + "[" * 3_000 + "]" * 3_000 + "\n": f":1: lists and mappings are nested more than {MAX_DEPTH} deep",
    "a: " + "{b: " * 40 + "1" + "}" * 40 + "\n": ":1: lists and mappings are nested",
    "a: !!python/object/apply:os.system [ls]\n": ":1: tags",
    "a: 1\nb: 010\n": ":2: 010 is another number",
    "a: 1:30\n": ":1: 1:30 is another number",
    "a: [1, 1_0]\n": ":1: 1_0 is another number",
    "a: 0x1F\n": ":1: 0x1F is another number",
    "a: 0b11\n": ":1: 0b11 is another number",
    "a: 1_0.5\n": ":1: 1_0.5 is another number",
    "a: {b: yes}\n": ":1: yes is true or false to some readers",
    "a: 1\noff: 2\n": ":2: off is true or false to some readers",
    "a: 1\n\nb: 1\na: 2\n": ":4: a is there twice, first on line 1",
    "a: {b: 1, b: 2}\n": ":1: b is there twice",
    "? [1]\n: 2\n": ":1: a key must be a name",
    "a: 1\n---\na: 1\n": ":2: a second document",
    "a: [1\n": "is not valid YAML, line 2: ",
    "a: 1\n\tb: 2\n": "is not valid YAML, line 2: ",
    "a: \x00\n": "is not valid YAML: ",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_is_refused_with_its_line(text, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(str(path), "--config")
    assert str(path) in str(caught.value) and HOSTILE[text] in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda path: os.symlink("/dev/zero", path), "is no regular file"),
        (os.mkfifo, "is no regular file"),
        (os.mkdir, "is no regular file"),
        (lambda path: os.symlink(path, path), "cannot read"),
        (lambda path: path.write_bytes(b"a: \xff\n"), "is not valid UTF-8"),
        (lambda path: path.write_bytes(b"#" * (MAX_BYTES + 1)), "is larger than 8 MB"),
    ],
)
def test_what_is_no_file_of_text(make, message, tmp_path):
    make(path := tmp_path / "x.yaml")
    with pytest.raises(InputError, match=message):
        load(str(path), "--config")


def test_what_is_plain_is_read_as_everybody_reads_it(tmp_path):
    text = "a: 1\nb: [2.5, -3, .5, 1., x y, '010', \"yes\", null, ~, true, False]\nc: {d: {e: }}\n"
    text += "--f: |\n  t\n0: -0.25\n"
    path = tmp_path / "x.yaml"
    path.write_text(text)
    loaded = load(str(path), "--config")
    expected = yaml.safe_load(text)
    expected["f"] = expected.pop("--f")
    assert loaded == expected and loaded.lines == {"a": 1, "b": 2, "c": 3, "f": 4, 0: 6}
    assert [type(value) for value in loaded["b"][:3]] == [Number, int, Number]
    path.write_text(json.dumps(values := {"r0": 1e-5, "r1": {"supply": 3, "max_demand": 0.5}}, indent=2))
    assert load(str(path), "--supplies") == values
    path.write_text("﻿delta: 1e-5\nid: 1.10\nday: 2026-01-31\n")
    loaded = load(str(path), "--config")
    assert loaded == {"delta": 1e-5, "id": 1.1, "day": "2026-01-31"} and loaded["id"].text == "1.10"
    path.write_text("")
    assert load(str(path), "--config") is None


@pytest.mark.parametrize(
    "argv",
    [
        ["select", "--config"],
        ["plan", "--family=pack", "--epsilon=1", "--delta=1e-6", "--num_agents=9", "--supplies"],
    ],
)
@pytest.mark.parametrize("content", [LAUGHS, "a: 010\n"])
def test_every_file_that_commands_read(argv, content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(content)
    assert main([*argv, "x.yaml"]) == 2
    err = capsys.readouterr().err
    assert "x.yaml:" in err and err.count("\n") == 1 and ("aliases" in err or "another number" in err)


def test_a_text_that_looks_like_a_number_stays_as_it_is_written(tmp_path):
    from dpbeam.cli.select import make_parser

    (tmp_path / "c.yaml").write_text("release_id: 1.10\ndelta: 1e-5\nbudget_period: 2026-01-31\n")
    options, _ = make_parser().parse([f"--config={tmp_path}/c.yaml"])
    assert options.said == {"release_id": "1.10", "delta": 1e-5, "budget_period": "2026-01-31"}


def test_no_other_reader_of_yaml(capsys):
    import pathlib
    import re

    import dpbeam

    root = pathlib.Path(dpbeam.__file__).parent
    readers = [
        p.name
        for p in root.rglob("*.py")
        if re.search(r"yaml\.(safe_load|load|compose|parse)\b", p.read_text())
    ]
    assert readers == ["yaml_files.py"]
