"""Codes of languages, compared with ISO's tables where the machine has them."""

import json
from pathlib import Path

import pytest

from transduce.text.codes import Codes, find_country, find_direction, find_main, is_same, write_code
from transduce.text.detect import NAMES

ISO = Path("/usr/share/iso-codes/json/iso_639-3.json")


@pytest.mark.skipif(not ISO.exists(), reason="needs the package iso-codes")
def test_three_letters_mean_what_iso_says():
    rows = json.loads(ISO.read_text(encoding="utf-8"))["639-3"]
    known = [row for row in rows if row.get("alpha_2") in NAMES]
    assert len(known) == len(NAMES)
    for row in known:
        for key in ("alpha_2", "alpha_3", "bibliographic"):
            assert write_code(row.get(key, row["alpha_2"])) == row["alpha_2"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *[("de", "de"), ("DEU", "de"), ("pt_br", "pt-BR"), ("cmn_Hans", "zh-Hans"), ("zh-hant-tw", "zh-Hant-TW")],
        *[("es-419", "es-419"), ("en_XX", "en"), ("iw", "he"), ("nno", "nn"), ("de-CH-1996", "de-CH")],
        *[("src", ""), ("mul", ""), ("", ""), ("x-klingon", ""), ("german", ""), ("{{lang}}", "")],
    ],
)
def test_models_names_of_languages_are_written_as_documents_write_them(name: str, code: str):
    assert write_code(name) == code
    assert write_code(code) == code


def test_directions():
    assert {code for code in NAMES if find_direction(code) == "rtl"} == {"ar", "fa", "he", "ps", "ug", "ur", "yi"}
    for code in ("ar-EG", "heb", "pa-Arab", "uz-Arab-AF"):
        assert find_direction(code) == "rtl"
    for code in ("ku-Latn", "ug-Latn", "en-SA", "zh-Hans"):
        assert find_direction(code) == "ltr"
    assert Codes("en", "ar").turns
    assert not Codes("ar", "fa").turns
    assert not Codes("", "ar").turns


def test_countries_and_other_names_do_not_make_another_language():
    assert is_same("en-US", "eng")
    assert is_same("no", "nb-NO")
    assert not is_same("en", "enm")
    assert not is_same("", "")
    assert find_main("de-AT") == find_main("GER") == "de"
    codes = ("de", "de-AT", "zh", "zh-Hant", "zh-Hans-SG", "es-419", "eo")
    assert [find_country(code) for code in codes] == ["DE", "AT", "CN", "TW", "SG", "419", ""]
