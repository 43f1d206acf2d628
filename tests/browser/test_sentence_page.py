"""The page of a sentence in Chromium: pointing, clicking and typing change what they should."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from samples import HEADS, LAYERS, Open, make_seen, sentence_page

SCREENS = [(360, 740, "dark"), (820, 1000, "light"), (1200, 900, "light")]


@pytest.fixture
def page(open_page: Open) -> Page:
    """The page of a sentence with five subwords."""
    return open_page(sentence_page(make_seen(), roles=True))


def word(page: Page, side: str, index: int) -> Locator:
    return page.locator(f'.word[data-side="{side}"][data-index="{index}"]')


def choose(page: Page, name: str, value: str | int) -> None:
    page.locator(f'input[name="{name}"][value="{value}"]').check()


def only(page: Page, *heads: int) -> None:
    page.get_by_role("button", name="none", exact=True).click()
    for head in heads:
        choose(page, "head", head)


def lines(page: Page) -> int:
    return page.locator("#attention line").count()


def test_sentence_and_translation_are_shown_as_text(page: Page):
    expect(page.locator("h1")).to_have_text("word0 <b>& " + "x" * 12)
    expect(page.locator(".translation")).to_have_text("wort0 …")
    assert page.locator("h1 b").count() == 0
    assert word(page, "query", 1).locator("text").text_content() == "·on1"
    assert word(page, "query", 2).locator("text").text_content() == "word2"


def test_kind_layer_and_heads_choose_the_lines(page: Page):
    """In layer 1 two heads have one line per word, and one head attends to all six keys, above the threshold."""
    choose(page, "layer", 0)
    assert lines(page) == 6 + 6 + 36
    only(page, 0)
    assert lines(page) == 6
    colours = page.locator("#attention line").evaluate_all("lines => lines.map(line => getComputedStyle(line).stroke)")
    assert len(set(colours)) == 1
    choose(page, "head", 1)
    assert lines(page) == 12
    choose(page, "kind", "cross")  # all heads again: another kind, other heads
    assert lines(page) == 5 + 5 + 5 * 6
    assert page.locator('.word[data-side="query"]').count() == 5
    assert page.locator('.word[data-side="key"]').count() == 6
    assert word(page, "query", 4).locator("text").text_content() == "⟨end⟩"
    choose(page, "kind", "decoder")
    assert lines(page) == 5 + 5 + 15
    assert word(page, "query", 0).locator("text").text_content() == "⟨begin⟩"
    page.get_by_role("button", name="none", exact=True).click()
    assert lines(page) == 0
    expect(page.locator("#attention .plot")).to_have_text("No head selected.")
    page.get_by_role("button", name="all", exact=True).click()
    assert lines(page) == 25


def test_lines_go_where_the_weights_say(page: Page):
    choose(page, "layer", 0)
    only(page, 1)
    ends = page.locator("#attention line").evaluate_all(
        "lines => lines.map(line => [line.getAttribute('y1'), line.getAttribute('y2')].map(Number))"
    )
    step = ends[1][0] - ends[0][0]
    assert [round((second - first) / step) for first, second in ends] == [0, -1, -1, -1, -1, -1]
    choose(page, "layer", 1)
    only(page, 1)
    strengths = page.locator("#attention line").evaluate_all(
        "lines => lines.map(line => Number(line.getAttribute('stroke-opacity')))"
    )
    assert sorted(set(strengths)) == [0.25, 0.75, 1]


def test_pointing_at_a_word_shows_where_it_looks(page: Page):
    choose(page, "layer", 1)
    word(page, "query", 2).hover()
    assert lines(page) == 6 + 2 + 1
    detail = page.locator(".detail")
    expect(detail.locator("h3")).to_have_text("word2 attends to")
    assert detail.locator(".who").all_text_contents() == ["head 1: broad", "head 2: mixed", "head 3: end"]
    assert detail.locator(".who:nth-of-type(n) + .bar").nth(1).inner_text().split() == ["word0", ".75"]
    # Its shares stand behind the words it looks at: one head on every word, two more on the first.
    assert word(page, "key", 0).locator(".shares rect").count() == 3
    assert word(page, "key", 2).locator(".shares rect").count() == 2
    assert word(page, "key", 4).locator(".shares rect").count() == 1
    word(page, "key", 0).hover()
    expect(detail.locator("h3")).to_have_text("word0 is attended to by")
    assert lines(page) == 6 + 6 + 6
    page.locator("h1").hover()
    expect(detail).to_contain_text("Point at a word")
    assert page.locator(".shares rect").count() == 0


def test_a_click_keeps_a_word_and_another_lets_it_go(page: Page):
    whole = lines(page)
    word(page, "query", 1).click()
    page.locator("h1").hover()
    expect(page.locator(".detail h3")).to_have_text("·on1 attends to")
    assert word(page, "query", 1).get_attribute("aria-pressed") == "true"
    only(page, 2)  # what is kept stays kept when heads change
    assert lines(page) == 1
    page.get_by_role("button", name="all", exact=True).click()
    word(page, "query", 1).click()
    page.locator("h1").hover()
    assert lines(page) == whole


def test_the_keyboard_reaches_everything(page: Page):
    page.locator('input[name="kind"][value="encoder"]').focus()
    page.keyboard.press("ArrowRight")  # radio buttons have the browser's own keys
    assert page.locator('input[name="kind"]:checked').get_attribute("value") == "decoder"
    assert page.evaluate("document.activeElement.value") == "decoder"  # and keep the keyboard
    page.keyboard.press("ArrowLeft")
    word(page, "query", 0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".detail h3")).to_have_text("word2 attends to")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".detail h3")).to_have_text("word2 is attended to by")
    page.keyboard.press("End")
    expect(page.locator(".detail h3")).to_have_text("⟨end⟩ is attended to by")
    page.keyboard.press("Enter")
    assert word(page, "key", 5).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")
    expect(page.locator(".detail")).to_contain_text("Point at a word")
    # One stop for each column, not one for each word.
    assert page.locator('.word[tabindex="0"]').count() == 2


def test_a_tap_shows_and_keeps(open_page: Open):
    page = open_page(sentence_page(make_seen()), width=360, height=740, has_touch=True, is_mobile=True)
    word(page, "query", 3).tap()
    expect(page.locator(".detail h3")).to_have_text("·on3 attends to")
    word(page, "query", 3).tap()
    expect(page.locator(".detail")).to_contain_text("Point at a word")
    page.locator("#probabilities .chips button").nth(0).tap()
    expect(page.locator(".rivals")).to_contain_text("wort0: the most probable")


def test_heads_are_chosen_by_role(page: Page):
    choose(page, "layer", 1)
    page.locator("select[name=role]").select_option("end")
    checked = page.locator('input[name="head"]:checked')
    assert [checked.nth(n).get_attribute("value") for n in range(checked.count())] == ["2"]
    assert lines(page) == 6


def test_without_roles_there_is_nothing_to_choose_by(open_page: Open):
    assert open_page(sentence_page(make_seen())).locator("select[name=role]").count() == 0


def test_the_heat_map_has_a_map_for_each_head(page: Page):
    choose(page, "view", "map")
    assert page.locator("canvas").count() == HEADS
    assert lines(page) == 0
    choose(page, "layer", 0)
    only(page, 1)
    canvas = page.locator("canvas")
    assert canvas.count() == 1
    # A cell is filled where the weight is: the second row's first, and not its second.
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] - 8)
    expect(page.locator(".detail h3")).to_have_text("⟨end⟩ attends to")
    assert page.locator(".detail .bar").first.inner_text().split() == ["word4", "1.00"]
    assert page.locator(".detail .bar.chosen").inner_text().split() == ["⟨end⟩", "<.01"]
    shades = canvas.evaluate(
        """canvas => {
          const copy = new OffscreenCanvas(canvas.width, canvas.height), scale = canvas.width / canvas.clientWidth;
          const context = copy.getContext("2d", { willReadFrequently: true });
          context.drawImage(canvas, 0, 0);
          const at = (fromRight, fromBottom) => [...context.getImageData(canvas.width - fromRight * scale,
            canvas.height - fromBottom * scale, 1, 1).data].join();
          return [at(15, 15), at(45, 15)];
        }"""
    )
    assert shades[0] != shades[1]
    assert shades[1] == "213,94,0,255"  # the second head's colour, at full strength
    canvas.focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator(".detail h3")).to_have_text("word4 attends to")
    page.mouse.click(box["x"] + box["width"] - 8, box["y"] + box["height"] - 8)
    page.locator("h1").hover()
    expect(page.locator(".detail h3")).to_have_text("⟨end⟩ attends to")


def test_probabilities_and_rivals(page: Page):
    chips = page.locator("#probabilities .chips button")
    assert chips.count() == 5
    rivals = page.locator(".rivals .bar")
    # At first the least certain step is shown, with what was more probable above it.
    assert [row.split() for row in rivals.all_inner_texts()] == [
        ["better", "0.500"],
        ["·fort1", "0.300"],
        ["worse", "0.100"],
    ]
    expect(page.locator(".rivals")).to_contain_text("number 2 of all")
    assert "low" in (chips.nth(1).get_attribute("class") or "")
    chips.nth(0).hover()
    assert rivals.first.inner_text().split() == ["wort0", "0.900"]
    page.locator("h1").hover()
    assert rivals.first.inner_text().split() == ["better", "0.500"]
    chips.nth(4).focus()
    assert rivals.first.inner_text().split() == ["⟨end⟩", "0.900"]


def test_the_beam_is_a_tree(page: Page):
    nodes = page.locator(".tree .node")
    assert nodes.count() == 8
    assert page.locator(".tree path").count() == 8
    assert page.locator(".tree .node.taken text").all_text_contents() == [
        "wort0",
        "·fort1",
        "wort2",
        "·fort3",
        "⟨end⟩ -0.70",
    ]
    boxes = [
        nodes.nth(n).locator("rect").evaluate("r => [r.x, r.y, r.width].map(v => v.baseVal.value)") for n in range(8)
    ]
    assert len({y for _, y, _ in boxes[:5]}) == 1  # the way taken is one row
    for n, (x, y, width) in enumerate(boxes):  # no two subwords lie on one another
        for other_x, other_y, _ in boxes[n + 1 :]:
            assert y != other_y or x + width <= other_x or other_x < x
    readout = page.locator("#beam .readout")
    nodes.nth(6).hover()
    expect(readout).to_have_text("·way: probability 0.368; log P so far -3.000; dropped from the beam here")
    nodes.nth(4).hover()
    expect(readout).to_contain_text("on the path to the translation; its score is -0.700")
    page.locator("#beam .scroll").focus()
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("wort0: probability 0.905")
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("·fort1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    expect(readout).to_contain_text("other: probability 0.135")


def test_a_given_translation_has_no_beam(open_page: Open):
    seen = make_seen()
    data = {**seen.__dict__, "tree": (), "tree_pieces": (), "given": True}
    page = open_page(sentence_page(type(seen)(**data)))
    assert page.locator("#beam").count() == 0
    assert page.locator("nav a").all_text_contents() == ["Attention", "Probabilities", "Words"]
    expect(page.locator("main > p.quiet")).to_contain_text("the translation was given")


def test_words_are_linked_both_ways(page: Page):
    source, target = page.locator("#words .text").nth(0), page.locator("#words .text").nth(1)
    assert source.locator("button").all_inner_texts() == ["word0on1", "word2on3", "word4"]
    target.locator("button").nth(0).hover()
    assert source.locator(".linked").all_inner_texts() == ["word0on1", "word2on3"]
    source.locator("button").nth(0).hover()
    assert target.locator(".linked").all_inner_texts() == ["wort0fort1", "wort2fort3"]
    source.locator("button").nth(2).focus()
    assert page.locator("#words .linked").count() == 0


def test_letters_that_are_single_bytes_are_spelled(open_page: Open):
    seen = make_seen()
    pieces = ("▁w", "<0xC3>", "<0xB6>", "<0x2E>", "▁on", "⟨end⟩")
    page = open_page(sentence_page(type(seen)(**{**seen.__dict__, "source_pieces": pieces})))
    assert page.locator("#words .text").nth(0).locator("button").all_inner_texts() == ["wö.", "on"]


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
@pytest.mark.parametrize("subwords", [2, 5, 80])
def test_nothing_is_wider_than_the_screen(open_page: Open, width: int, height: int, scheme: str, subwords: int):
    page = open_page(sentence_page(make_seen(subwords, subwords)), width=width, height=height, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for kind in ("cross", "decoder"):
        choose(page, "kind", kind)
        word(page, "query", subwords).hover()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    choose(page, "view", "map")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    only(page, 0)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Words of a column do not lie on one another, and no label leaves the drawing.
    choose(page, "view", "lines")
    boxes = page.locator('.word[data-side="query"] text').evaluate_all(
        "all => all.map(one => { const box = one.getBBox(); return [box.x, box.y, box.height]; })"
    )
    assert all(x >= 0 for x, _, _ in boxes)
    assert all(second[1] - first[1] >= 0.75 * first[2] for first, second in pairwise(boxes))


def test_colours_follow_the_scheme(open_page: Open):
    page = open_page(sentence_page(make_seen()), color_scheme="light")
    look = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('line')).stroke]"
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(look)
    assert light[0] == "rgb(255, 255, 255)"
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_the_drawing_fits_a_new_width(page: Page):
    before = page.locator("#attention svg").get_attribute("width")
    page.set_viewport_size({"width": 600, "height": 900})
    expect(page.locator("#attention svg")).not_to_have_attribute("width", before or "")
    assert page.evaluate("document.documentElement.scrollWidth") <= 600


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_drawing_can_be_saved(page: Page, tmp_path: Path, kind: str):
    only(page, 2)
    with page.expect_download() as download:
        page.get_by_role("button", name=kind.upper(), exact=True).click()
    assert download.value.suggested_filename == f"encoder-{LAYERS}.{kind}"
    saved = tmp_path / "saved"
    download.value.save_as(saved)
    if kind == "png":
        head = saved.read_bytes()[:24]
        assert head.startswith(b"\x89PNG\r\n")
        size = page.locator("#attention svg").get_attribute("width")
        assert int.from_bytes(head[16:20], "big") == 2 * int(size or 0)
    else:
        text = saved.read_text(encoding="utf-8")
        drawn = ElementTree.fromstring(text)
        found = [one for one in drawn.iter() if one.tag.endswith("}line")]
        assert len(found) == 6
        assert {line.get("stroke") for line in found} == {"rgb(0, 158, 115)"}
        assert not re.search(r"var\(|style=", text)


def test_the_policy_lets_nothing_else_run(browser: Browser, tmp_path: Path):
    """No foreign script, no request, no style from an attribute."""
    path = tmp_path / "page.html"
    path.write_text(sentence_page(make_seen()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.evaluate(
        """() => {
          window.refused = [];
          document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<p style='color: red' onclick='window.ran = true'></p>");
          document.body.lastChild.click();
          fetch("https://example.org/").catch(() => 0);
        }"""
    )
    for _ in range(50):  # Playwright's own way to wait would be refused too
        if page.evaluate("refused.length") >= 4:
            break
        page.wait_for_timeout(100)
    assert set(page.evaluate("refused")) == {"script-src-elem", "style-src-attr", "script-src-attr", "connect-src"}
    assert page.evaluate("window.ran") is None
    page.close()
