"""Languages are told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.detect import SCRIPTS, WORDS, detect, find_other, name_language

# The first article of the Universal Declaration of Human Rights (United Nations), of which each has its translation.
ARTICLES = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "zh": "人人生而自由，在尊严和权利上一律平等。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "he": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
}


@pytest.mark.parametrize("language", ARTICLES)
def test_a_sentence_is_enough(language: str):
    assert detect(ARTICLES[language], list(ARTICLES))[0][0] == language


@given(st.text(max_size=60), st.lists(st.sampled_from([*ARTICLES, "xx", "zh-Hans", "pt-BR"]), min_size=1))
def test_shares_are_shares_of_those_asked_for(text: str, among: list[str]):
    found = detect(text, among)
    assert [code for code, _ in sorted(found)] == sorted(set(among))
    assert all(0 <= share <= 1 for _, share in found)
    assert sorted(found, key=lambda pair: -pair[1]) == found


def test_another_language_than_those_served_is_known_as_such():
    ((_, share),) = detect(ARTICLES["de"], ["fr"])
    assert share < 0.2
    assert detect(ARTICLES["zh"], ["en", "zh-Hans"])[0][0] == "zh-Hans"
    assert detect("42 + 1 = 43", ["en", "de"]) == [("en", 0.0), ("de", 0.0)]


@pytest.mark.parametrize("language", ARTICLES)
def test_another_language_than_the_one_expected_is_told_where_it_is_clear(language: str):
    assert find_other(ARTICLES["en"], language) == (None if language == "en" else "en")
    assert find_other("Guten Morgen!", "en") is None  # too short to tell
    assert find_other(ARTICLES["en"], "nn-NO") == "en"


@pytest.mark.parametrize(
    ("text", "language"), [("मी उद्या सकाळी घरी जाणार आहे", "mr"), ("Утре ќе одам кај баба ми дома", "mk")]
)
def test_nothing_is_told_from_a_language_that_is_not_known(text: str, language: str):
    assert find_other(text, language) is None


def test_the_lists_belong_together():
    written = {language for languages in SCRIPTS.values() for language in languages.split()}
    assert set(WORDS) <= written
    assert all(name_language(language) != language for language in written)
    assert (name_language("pt-BR"), name_language("xx")) == ("Portuguese", "xx")
