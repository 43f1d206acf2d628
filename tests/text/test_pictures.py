"""Pictures of trees: every label and word is there, in its place, and nothing is overwritten."""

import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given, settings
from test_trees import TREES

from transduce.text.pictures import _width, draw_tree, make_svg
from transduce.text.trees import Tree, parse_tree, to_sentence

DOG = "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (PRP me))) (. .)))"


def test_a_small_tree_is_drawn_from_the_root_down():
    assert draw_tree(parse_tree(DOG)).splitlines() == [
        "          TOP",
        "           │",
        "           S",
        "   ┌───────┴──┬─────┐",
        "  NP         VP     .",
        " ┌─┴──┐     ┌─┴──┐",
        "the  dog  sees  NP",
        "                 │",
        "                me",
    ]


def test_characters_two_columns_wide_are_drawn_as_such():
    assert draw_tree(parse_tree("(S (NP (NN 東京)) (VP (VB 😀) (NN x)))")).splitlines()[2:] == [
        "     S",
        "  ┌──┴──┐",
        " NP    VP",
        "  │    ┌┴─┐",
        "東京  😀  x",
    ]


def test_a_wide_tree_is_drawn_from_left_to_right():
    assert draw_tree(parse_tree(DOG), width=10).splitlines() == [
        "TOP",
        "└─ S",
        "   ├─ NP  the dog",
        "   ├─ VP",
        "   │  ├─ sees",
        "   │  └─ NP  me",
        "   └─ .",
    ]


@settings(deadline=None)
@given(TREES)
def test_every_label_and_word_is_in_a_drawing(tree: Tree):
    words = to_sentence(tree.words()).split()
    labels = [label for label, _, _ in tree.spans()]
    for width in (1, 10_000):
        drawn = re.sub("[─│┌┐┬┴┼├┤└]", " ", draw_tree(tree, width))
        shown = drawn.split()
        for text in words + labels:
            if not set(text) & set("─│┌┐┬┴┼├┤└"):
                assert text in shown
    # Each line of the tree from the root down is as wide as the widest, at most.
    assert len(draw_tree(tree, 10_000).splitlines()) >= 2


@settings(deadline=None)
@given(TREES)
def test_a_picture_is_xml_with_every_label_and_word_in_its_order(tree: Tree):
    root = ElementTree.fromstring(make_svg([tree, tree]))
    space = "{http://www.w3.org/2000/svg}"
    groups = root.findall(f"{space}g")
    assert len(groups) == 2
    for group in groups:
        texts = group.findall(f"{space}text")
        words = [text.text for text in texts if text.get("class") is None]
        labels = sorted(text.text or "" for text in texts if text.get("class") == "label")
        # What XML cannot hold is shown as what it is: nothing that can be shown.
        shown = ["".join(c if c.isprintable() else "\ufffd" for c in to_sentence([word])) for word in tree.words()]
        assert words == shown
        assert labels == sorted(label for label, _, _ in tree.spans())
        # An edge for each part of each constituent.
        parts = len(tree.leaves()) + len(tree.spans()) - 1
        assert len(group.findall(f"{space}path")) == parts


def test_words_stand_beside_one_another_and_within_the_picture():
    tree = parse_tree("(S (WHADVP (RB a)) (NP (NN x)) (ADVP (RB b)) (NN word))")
    root = ElementTree.fromstring(make_svg([tree]))
    space = "{http://www.w3.org/2000/svg}"
    texts = root.findall(f"{space}g/{space}text")
    by_height: dict[str, list[float]] = {}
    for text in texts:
        by_height.setdefault(str(text.get("y")), []).append(float(str(text.get("x"))))
        assert 0 < float(str(text.get("x"))) < float(str(root.get("width")))
        assert 0 < float(str(text.get("y"))) < float(str(root.get("height")))
    for places in by_height.values():
        assert all(right - left > 15 for left, right in pairwise(places))


@settings(deadline=None)
@given(TREES)
def test_labels_do_not_overlap_and_are_not_cut(tree: Tree):
    root = ElementTree.fromstring(make_svg([tree]))
    spans: dict[str, list[tuple[float, float]]] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        middle, half = float(str(text.get("x"))), _width(text.text or "") / 2
        spans.setdefault(str(text.get("y")), []).append((middle - half, middle + half))
    for row in spans.values():
        assert min(begin for begin, _ in row) >= 0
        assert max(end for _, end in row) <= float(str(root.get("width")))
        for (_, end), (begin, _) in pairwise(sorted(row)):
            assert end < begin


def test_what_a_word_says_is_no_markup():
    assert "<b>" not in make_svg([parse_tree("(S (NN <b>) (NN &))")])
