"""The page of heads in Chromium: sorting, choosing, and every width."""

import pytest
from playwright.sync_api import Page, expect
from samples import Open, heads_page, make_findings


@pytest.fixture
def page(open_page: Open) -> Page:
    """The page of eighteen heads."""
    return open_page(heads_page(make_findings()))


def order(page: Page) -> list[str]:
    return page.locator(".cards article").evaluate_all("all => all.map(one => one.id)")


def test_heads_come_by_what_is_lost_without_them(page: Page):
    found = order(page)
    assert len(found) == 18
    assert found[0] == "encoder-2-3"
    page.get_by_role("button", name="largest first").click()
    assert order(page) == found[::-1]


def test_they_are_sorted_by_any_measure(page: Page):
    page.locator("select[name=order]").select_option("aligned")
    assert order(page)[:2] == ["cross-2-3", "cross-2-2"]  # of other kinds it is not known: they come last
    page.locator("button[name=down]").click()
    assert order(page)[:2] == ["cross-1-1", "cross-1-2"]
    page.locator("select[name=order]").select_option("place")
    assert order(page)[-1] == "encoder-1-1"


def test_kinds_and_roles_are_chosen(page: Page):
    page.locator('input[name="kind"][value="decoder"]').check()
    assert all(name.startswith("decoder") for name in order(page))
    assert page.locator(".overview table").count() == 1
    page.locator("select[name=role]").focus()
    page.locator("select[name=role]").select_option("begin")
    assert sorted(order(page)) == ["decoder-1-1", "decoder-2-1"]
    assert page.evaluate("document.activeElement.name") == "role"
    page.locator("select[name=role]").select_option("aligned")
    assert order(page) == []
    page.locator('input[name="kind"][value="all"]').check()
    assert len(order(page)) == 2


def test_a_card_says_what_was_measured(page: Page):
    card = page.locator("#encoder-2-3")
    assert card.locator("h3").inner_text().split("\n") == ["encoder 2.3", "mixed"]
    assert [row.split("\n") for row in card.locator(".bar").all_inner_texts()] == [
        ["previous token", ".28"],
        ["the end", ".28"],
    ]
    expect(card).to_contain_text("loss without it +1.0000")
    expect(page.locator("#cross-1-1")).to_contain_text("−.0067")
    widths = card.locator(".track").first.evaluate(
        "track => [...track.children].map(one => parseFloat(one.style.width || one.style.left))"
    )
    assert widths == pytest.approx([27.8, 10.0], abs=0.1)
    assert page.locator("#encoder-1-1 .lead").inner_text().split("\n")[0] == "previous token"


def test_the_overview_leads_to_the_cards(page: Page):
    cells = page.locator(".overview td a")
    assert cells.count() == 18
    assert cells.nth(5).inner_text() == "+1.000"
    strongest = cells.evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert strongest.count(strongest[5]) == 1
    cells.nth(17).click()
    assert page.url.endswith("#cross-2-3")
    expect(page.locator("#cross-2-3")).to_be_in_viewport()


def test_there_may_be_bleu_and_no_losses(open_page: Open):
    found = make_findings()
    for number, head in enumerate(found["heads"]):
        head["loss_without"], head["bleu_without"] = None, 30 - number
    found["bleu"] = 30.0
    page = open_page(heads_page(found))
    page.locator("select[name=order]").select_option("gain")
    assert order(page)[0] == "encoder-1-1"
    expect(page.locator("#cross-2-3")).to_contain_text("BLEU without it −17.0")
    assert page.locator("select[name=order] option[value=cost]").count() == 0


@pytest.mark.parametrize("width", [360, 820, 1200])
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (6, 16)])
def test_nothing_is_wider_than_the_screen(open_page: Open, width: int, layers: int, heads: int):
    page = open_page(heads_page(make_findings(layers, heads)), width=width, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert len(order(page)) == 3 * layers * heads
