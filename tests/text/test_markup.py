"""HTML keeps its markup; elements within a line go with the words they stood around."""

import html
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.codes import NO_CODES, Codes
from transduce.text.markup import MOST_ELEMENTS, Links, Markup

PIECES = ["<b>", "</b>", "<i>", "</i>", "<br/>", "<!-- a > b -->", '<a href="x>y">', "</a>", "<img src=x>", "<script>"]
PIECES += ["</script>", "<", ">", "&amp;", '"', "two", "two,", " nine\n", "<pre>", "</pre>", " "]


def keep(text: str) -> tuple[str, Links]:
    """Return the same text as a translation."""
    return text, [(place, place) for place in range(len(text.split()))]


def turn(text: str) -> tuple[str, Links]:
    """Return a translation with the words in reverse order."""
    words = text.split()[::-1]
    return " ".join(words), [(len(words) - 1 - place, place) for place in range(len(words))]


class Read(HTMLParser):
    """HTML by Python's own parser: the letters, each with the tags around it."""

    def __init__(self, text: str):
        super().__init__()
        self.here: list[str] = []
        self.letters: list[tuple[str, tuple[str, ...]]] = []
        self.empty: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "img":
            self.empty.append(tag)
        else:
            self.here.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.here.pop() == tag

    def handle_data(self, data: str) -> None:
        self.letters += [(letter, tuple(self.here)) for letter in data if letter.isalnum()]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_markup_without_a_change_means_what_it_meant(text: str):
    markup = Markup(text)
    found = markup.fill([keep(own) for own in markup.texts])
    assert found.count("<script") == text.count("<script")
    if not markup.has_elements:
        assert html.unescape(found) == html.unescape(text)


WORDS = st.sampled_from(["two", "nine,", "(a)", "b", "éa"])
TEXTS = st.recursive(
    WORDS,
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{' '.join(parts)}</{tag}>",
        st.sampled_from(["b", "i", "a", "span"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@given(st.lists(TEXTS | st.just("<img src=x>"), min_size=1, max_size=4).map(" ".join))
def test_every_letter_keeps_its_tags(text: str):
    markup = Markup(text)
    same = Read(markup.fill([keep(own) for own in markup.texts]))
    assert same.letters == Read(text).letters
    # In another order they are the same letters with the same tags, and the tags still close one another.
    turned = Read(markup.fill([turn(own) for own in markup.texts]))
    assert sorted(turned.letters) == sorted(same.letters)
    assert turned.empty == same.empty == Read(text).empty


@pytest.mark.parametrize(
    ("source", "texts", "links", "expected"),
    [
        ("<p>the <b>old</b> man.</p>", ["l' homme vieux."], [(0, 0), (2, 1), (1, 2)], "<p>l' homme <b>vieux</b>.</p>"),
        # A whole sentence in a link needs no links of words.
        ("<li><a href=x>the man</a></li>", ["l'homme"], None, "<li><a href=x>l'homme</a></li>"),
        # Words that part take their tags with them.
        ("to <b>give up</b> it", ["gibt es auf"], [(1, 0), (3, 1), (2, 2)], "<b>gibt</b> es <b>auf</b>"),
        # What no word comes from stays with a neighbour; what holds no words stays where it was.
        ("a <b>very</b> man", ["homme"], [(2, 0)], "<b>homme</b>"),
        ("a <img src=x>man", ["un homme"], [(0, 0), (1, 1)], "un <img src=x>homme"),
        ("a <img src=x> man", ["un homme"], [(0, 0), (1, 1)], "un <img src=x> homme"),
        # What follows a word follows its translation, before a comma as well; behind a sentence it stays behind one.
        ("the man<img> is old", ["vieux est l'homme"], [(1, 2), (2, 1), (3, 0)], "vieux est l'homme<img>"),
        ("the man<img>, old", ["vieux, l'homme"], [(2, 0), (1, 1)], "vieux, l'homme<img>"),
        ("old<img>, a man", ["vieux, un homme"], [(0, 0), (1, 1), (2, 2)], "vieux<img>, un homme"),
        ("I saw it.<img> Now go", ["je l'ai vu. Va"], [(2, 1), (3, 3)], "je l'ai vu.<img> Va"),
        ("a<b> </b>man is", ["un homme"], [(0, 0), (1, 1)], "un<b></b> homme"),
        # It stays in what it is in, and out of what it is not in.
        ("a <img><b>man</b> is", ["un homme"], [(0, 0), (1, 1)], "un <img><b>homme</b>"),
        ("a <b><img>man</b> is", ["un homme"], [(0, 0), (1, 1)], "un <b><img>homme</b>"),
        ("the man <img src=x>", ["l'homme"], [(1, 0)], "l'homme<img src=x>"),
        # Without links words keep their order.
        ("one <i>two</i>", ["un deux"], None, "un <i>deux</i>"),
        ("one <i>two</i>", [""], [], "<i></i>"),
        # Links to words that are not there are none.
        ("one <i>two</i>", ["un deux"], [(7, 1), (0, 9)], "un <i>deux</i>"),
        # Letters are letters in the translation too.
        ("one <i>two</i>", ["a<b> &amp;"], [(0, 0), (1, 1)], "a&lt;b&gt; &amp;<i>amp</i>;"),
    ],
    ids=range(18),
)
def test_words_get_the_tags_of_those_they_come_from(source: str, texts: list[str], links: Links | None, expected: str):
    assert Markup(source).fill([(text, links) for text in texts]) == expected


def test_only_texts_are_given_out():
    markup = Markup(
        '<p data-x="two > one">two <b>nine</b>&nbsp;</p><STYLE>p { }</style><code>x</code> &lt;three&gt; 1 < 2<br>'
        "<b>four<p>five</b></p>"
    )
    assert markup.texts == ["two nine\xa0", " <three> 1 < 2", "four", "five"]
    assert markup.fill([("a <b>", [(0, 0), (1, 1)]), ("d", None), ("e", None), ("f", None)]) == (
        '<p data-x="two > one">a &lt;<b>b</b>&gt;</p><STYLE>p { }</style><code>x</code>d<br><b>e<p>f</b></p>'
    )


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("we <b>use</b> <span translate=no>Acme <b>Cloud</b></span> here", ["we use ", " here"]),
        ("<p class='a notranslate'>one</p><p class=notranslated>two</p>", ["two"]),
        ('<div TRANSLATE="No">one<div>two</div>three</div>four', ["four"]),
        ("<div translate=no>one <p translate=yes>two <i>three</i></p> four</div>", ["two three"]),
        ("<div translate=no>one<b translate>two<i translate=no>three</i>four</b></div>five", ["two", "four", "five"]),
        ("<div translate=maybe>one</div>", ["one"]),
        # What is not closed ends with what it is in, or where the next of its kind begins.
        ("<ul><li translate=no>one<li>two</ul>", ["two"]),
        ("<ul><li translate=no>one<ul><li>two</ul>three</ul>four", ["four"]),
        ("<ul><li translate=no>one</ul>two", ["two"]),
        ("<p translate=no>one<br>two<img>three</b>four</p>five", ["five"]),
        ("<p translate=no/>one", ["one"]),
        ("<p translate=no>one <!-- </p> --><script></p></script> two", []),
    ],
)
def test_what_is_not_to_be_translated_is_left_as_it_is(source: str, texts: list[str]):
    markup = Markup(source)
    assert [text for text in markup.texts if text.strip()] == texts
    assert markup.fill([keep(text) for text in markup.texts]) == source


def test_what_people_read_of_tags_is_translated():
    markup = Markup(
        "<p title='one &amp; two'>three <img alt=four><b aria-label=\"four\">five</b></p>"
        "<a><img ALT = 'six' src=x></a>"
        "<input type=Submit value=seven placeholder='&gt;'><input value=eight placeholder=nine><p alt title=''>"
        "<img translate=no alt=ten><div translate=no title=ten><p title=ten></div>"
    )
    assert markup.texts == ["three five", "one & two", "four", "six", "seven", "nine"]
    raised = [(text.upper().replace("FOUR", 'F"R'), links) for text, links in map(keep, markup.texts)]
    assert markup.fill(raised) == (
        '<p title="ONE &amp; TWO">THREE <img alt="F&quot;R"><b aria-label="F&quot;R">FIVE</b></p>'
        '<a><img ALT = "SIX" src=x></a>'
        "<input type=Submit value=\"SEVEN\" placeholder='&gt;'><input value=eight placeholder=\"NINE\"><p alt title=''>"
        "<img translate=no alt=ten><div translate=no title=ten><p title=ten></div>"
    )


@pytest.mark.parametrize(
    ("codes", "source", "expected"),
    [
        (Codes("en", "de"), '<html lang="en-US" id=a><p lang=en>two', '<html lang="de" id=a><p lang="de">two'),
        (
            Codes("en", "pt-BR"),
            """<?xml?><!-- <html lang=a> --><!DOCTYPE html><html xml:lang='en' LANG = 'en'><p>two""",
            """<?xml?><!-- <html lang=a> --><!DOCTYPE html><html xml:lang="pt-BR" LANG = "pt-BR"><p>two""",
        ),
        # Without the model's languages, a tag tells the target and the page its own language.
        (
            Codes("", "de"),
            "<html lang=en><p lang=en>two<p lang=fr>deux",
            '<html lang="de"><p lang="de">two<p lang=fr>deux',
        ),
        (Codes("", "de"), "<p lang=en>two", "<p lang=en>two"),
        (Codes("en", ""), "<html lang=en dir=ltr><p>two", "<html lang=en dir=ltr><p>two"),
        (NO_CODES, "<html lang=en><p>two", "<html lang=en><p>two"),
        # What stays in the source's language says so still, and what links lead to is not translated.
        (
            Codes("en", "de"),
            "<html lang=en><p translate=no lang=en>two</p><pre lang=en>two</pre><a hreflang=en data-lang=en>two</a>",
            '<html lang="de"><p translate=no lang=en>two</p><pre lang=en>two</pre><a hreflang=en data-lang=en>two</a>',
        ),
        (Codes("en", "de"), "<html lang=en><img src=x> …", "<html lang=en><img src=x> …"),  # nothing is translated
        # A page that is wrong about itself stays wrong.
        (Codes("en", "de"), "<html lang=fr><p lang=fr>two", "<html lang=fr><p lang=fr>two"),
        # The direction of writing.
        (Codes("en", "ar"), "<html lang=en><p>two", '<html dir="rtl" lang="ar"><p>two'),
        (Codes("en", "he"), "<html><p>two", '<html dir="rtl"><p>two'),
        (Codes("en", "he"), "<html dir=LTR><p dir=auto>two", '<html dir="rtl"><p dir=auto>two'),
        (Codes("ar", "en"), "<html lang=ar dir=rtl><p dir=rtl>two", '<html lang="en" dir="ltr"><p dir="ltr">two'),
        (Codes("ar", "en"), "<html lang=ar><p>two", '<html lang="en"><p>two'),
        (Codes("ar", "fa"), "<html lang=ar dir=rtl><p>two", '<html lang="fa" dir=rtl><p>two'),
        (
            Codes("en", "ar"),
            "<html dir=auto><p>two <span dir=ltr>+49</span> <i lang=en dir=ltr>nine</i> <bdo lang=en dir=ltr>a</bdo>",
            '<html dir=auto><p>two <span dir=ltr>+49</span> <i lang="ar" dir="rtl">nine</i> '
            '<bdo lang="ar" dir=ltr>a</bdo>',
        ),
        (Codes("en", "ar"), "<p>two", "<p>two"),
    ],
)
def test_a_page_says_what_language_it_is_in_now(codes: Codes, source: str, expected: str):
    markup = Markup(source, codes)
    assert markup.fill([keep(text) for text in markup.texts]) == expected


def test_words_in_another_language_say_so_while_they_stay():
    markup = Markup("<p>a <i lang=fr title=b>bon mot</i> <b>or</b> two<img lang=fr>", Codes("en", "de"))
    links = [(place, place) for place in range(5)]
    texts = "ein bon mot oder zwei", "ein gutes Wort oder zwei"
    names = "lang=fr", 'lang="de"'
    for text, name in zip(texts, names):
        words = text.split()
        assert markup.fill([(text, links), ("c", None)]) == (
            f'<p>ein <i {name} title="c">{" ".join(words[1:3])}</i> <b>oder</b> zwei<img lang=fr>'
        )


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<html lang=en>one<p lang=fr>deux<p>three<p lang=en-GB>four", ["one", "three", "four"]),
        ("<html lang=en><div lang=fr>deux <b>trois</b><p>quatre</p><i lang=en>cinq</i></div>six", ["six"]),
        ('<html lang=en><div lang=fr>deux<p lang=en>three<img alt="four"></div>', ["three", "four"]),
        ("<html lang=en><div lang=fr>deux<p translate=yes>three</div>", ["three"]),
        ("<html lang=en><div lang=fr translate=yes>two</div>", ["two"]),
        ("<html lang=en><div translate=no>one<p lang=en>two</div>three", ["three"]),
        ("<html lang=en><p lang=de>eins</p>two", ["two"]),  # it is in the target language already
        ("<html lang=en>one <i lang=fr>bon mot</i> three", ["one bon mot three"]),  # a sentence stays whole
        (
            "<html lang=en><li><b><a lang=fr>Français</a></b><li>\n<a lang=es>Español</a><li> <a lang=en>English</a>",
            ["English"],
        ),  # no sentence
        ("<html lang=en><p lang=''>one<p lang=python>two", ["one", "two"]),
        # A page that does not name the model's language as its own is not believed about its parts.
        ("<html><p lang=fr>two", ["two"]),
        ("<p lang=en>one<p lang=fr>two", ["one", "two"]),
        ("<html lang=fr><p lang=fr>one<p lang=es>two", ["one", "two"]),
    ],
)
def test_parts_in_another_language_stay_as_they_are(source: str, texts: list[str]):
    markup = Markup(source, Codes("en", "de"))
    assert [text.strip() for text in markup.texts if text.strip()] == texts
    assert Markup(source, Codes("en", "")).fill([keep(text) for text in markup.texts]) == source


def test_no_text_takes_more_time_than_in_proportion_to_its_length():
    # A search for the end of each tag, element or attribute that read all the rest would take hours here.
    for text in ('<a "' * 100_000, "two <!--" * 100_000, "two <" * 100_000):
        assert Markup(text).texts == [text]
    for text in ("<p translate=no>two" * 50_000, "<b translate=no><i translate=yes>" * 50_000, "</b>" * 100_000):
        assert Markup(text).texts == []
    for text in ("<!-- >" * 100_000, "<!-- a" * 100_000 + ">", "<?" * 100_000, "<html lang=en><p lang=fr>" * 50_000):
        assert not Markup(text, Codes("en", "de")).has_elements
    assert Markup(f"<p {'a ' * 100_000}{' ' * 100_000}title{' ' * 100_000}>").texts == []
    many = Markup("<b>two</b> nine " * (MOST_ELEMENTS + 1))
    assert not many.has_elements
    for text in ("two <b>" * 10_000, "<b>" * 10_000 + "two" + "</b>" * 10_000, "<b>two</b> " * 10_000):
        markup = Markup(text)
        assert markup.fill([keep(own) for own in markup.texts]) == text
