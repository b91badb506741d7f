"""docs/kit.md lists every header of the kit once, with names that the header really has."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "include" / "penstock" / "kit"
ROW = re.compile(r"^\| \[`(.+?)`\]\((.+?)\) \| (.+?) \| (.*?) ?\| (.+?) \|$", re.MULTILINE)


def rows():
    return ROW.findall((ROOT / "docs" / "kit.md").read_text())


def test_every_header_is_listed_once_and_no_other():
    headers = sorted(path.relative_to(KIT).as_posix() for path in KIT.rglob("*") if path.is_file())
    assert sorted(name for name, *_ in rows()) == headers


def test_links_lead_to_the_headers():
    for name, link, *_ in rows():
        assert (ROOT / "docs" / link).resolve() == KIT / name


def test_key_names_are_declared_in_the_header():
    for name, _, _, names, _ in rows():
        text = (KIT / name).read_text()
        for key in re.findall(r"`(.+?)`", names):
            assert re.search(rf"(?<!\w){key}(?= ?[({{;:=]|\n|<| \w)", text), f"{name}: {key}"


def test_each_description_is_one_sentence():
    for name, _, sentence, *_ in rows():
        assert sentence.endswith(".") and ". " not in sentence, f"{name}: {sentence}"
