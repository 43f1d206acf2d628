"""Trees: read from brackets as treebanks have them, checked, and as sequences that lose neither labels nor words."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.corpus import Input, decode_block, read_blocks
from transduce.text.trees import (
    DEEPEST,
    ROOT,
    Tree,
    TreeError,
    cut_trees,
    escape_word,
    from_sequence,
    parse_tree,
    strip_function,
    to_sentence,
    to_sequence,
)

LABELS = st.sampled_from(["S", "NP", "VP", "PP", "X|Y", "WHADVP", "É"])
WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"], exclude_characters="() \t"), min_size=1
)
TAGS = st.sampled_from(["NN", "DT", "PRP$", ",", "-LRB-", "``"])
LEAVES = st.builds(lambda tag, word: Tree(tag, word=word), TAGS, WORDS)


def above(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.builds(Tree, LABELS, st.lists(children, min_size=1, max_size=4).map(tuple))


NODES = st.recursive(LEAVES, above, max_leaves=12)
TREES = st.builds(lambda parts: Tree(ROOT, tuple(parts)), st.lists(NODES, min_size=1, max_size=3))


@given(TREES)
def test_a_tree_is_read_as_it_was_written(tree: Tree):
    assert parse_tree(str(tree)) == tree
    spread = str(tree).replace("(", "\n  ( ").replace(" )", ")\n\t")
    assert parse_tree(spread) == tree


@given(TREES, st.booleans())
def test_a_sequence_gives_back_labels_and_words(tree: Tree, labelled: bool):
    symbols = to_sequence(tree, labelled=labelled)
    again = from_sequence(symbols, tree.words())
    assert again.words() == tree.words()
    assert again.spans() == tree.spans()
    assert to_sequence(again, labelled=labelled) == symbols
    assert symbols.count("XX") == len(tree.words())
    assert " ".join(symbols).split() == symbols  # each is a word to the subwords
    for leaves in ("tags", "words"):
        assert from_sequence(to_sequence(tree, labelled=labelled, leaves=leaves), tree.words()) == tree


@given(TREES)
def test_tags_come_from_another_tree_over_the_same_words(tree: Tree):
    bare = parse_tree(str(from_sequence(to_sequence(tree), tree.words())))
    kept = [leaf.label for leaf in bare.leaves()]
    again = bare.with_tags(tree)
    assert (again.words(), again.spans()) == (tree.words(), tree.spans())
    tags = [leaf.label for leaf in again.leaves()]
    assert tags == [one.label if own == "XX" else own for one, own in zip(tree.leaves(), kept)]


def test_the_sequence_is_the_one_that_is_documented():
    tree = parse_tree("(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))")
    assert " ".join(to_sequence(tree)) == "( ( XX XX )NP ( XX )VP XX )S"
    assert " ".join(to_sequence(tree, labelled=True)) == "(S (NP XX XX )NP (VP XX )VP XX )S"
    assert " ".join(to_sequence(tree, leaves="tags")) == "( ( DT NN )NP ( VBZ )VP . )S"
    words = "(S (NP DT =(the NN =(dog )NP (VP VBZ =(barks )VP . =(. )S"
    assert " ".join(to_sequence(tree, labelled=True, leaves="words")) == words
    assert str(from_sequence(to_sequence(tree), tree.words())) == (
        "(TOP (S (NP (XX the) (XX dog)) (VP (XX barks)) (. .)))"
    )


@pytest.mark.parametrize("text", ["( (S (NN dog)) )", "(TOP (S (NN dog)))", "(S (NN dog))", "(ROOT (S (NN dog)))",
                                  "((S (NN dog)))", "(S1\n (S\n\t(NN   dog) ) )"])  # fmt: skip
def test_a_root_may_have_any_name_or_none(text: str):
    assert str(parse_tree(text)) == "(TOP (S (NN dog)))"


def test_a_root_may_have_several_parts_and_a_word_alone_is_a_tree():
    assert str(parse_tree("( (NP (NN a)) (. .) )")) == "(TOP (NP (NN a)) (. .))"
    assert str(parse_tree("(NN dog)")) == "(TOP (NN dog))"
    assert to_sequence(parse_tree("(NN dog)")) == ["XX"]
    assert str(from_sequence(["XX", "XX"], ["a", "?"])) == "(TOP (XX a) (. ?))"


def test_traces_and_function_tags_are_removed():
    text = """( (S
        (NP-SBJ-1 (NNP Ann) )
        (VP (VBZ wants)
          (S (NP-SBJ (-NONE- *-1) )
            (VP (TO to) (VP (VB leave) (NP=2 (-NONE- *T*)) (SBAR (WHNP-3 (-NONE- 0)) (S (-NONE- *T*-3)))))))
        (-LRB- -LRB-) (PRT|ADVP (RP up)) (. .) ))"""
    wanted = "(TOP (S (NP (NNP Ann)) (VP (VBZ wants) (S (VP (TO to) (VP (VB leave))))) (-LRB- -LRB-) (PRT|ADVP (RP up)) (. .)))"  # noqa: E501
    assert str(parse_tree(text)) == wanted
    assert [strip_function(label) for label in ("NP-SBJ", "NP=1", "-LRB-", "PRP$", "PP-LOC-CLR-3", "=")] == [
        "NP", "NP", "-LRB-", "PRP$", "PP", "=",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(S (NN dog)", "the tree is not closed; closing brackets missing: 1"),
        ("(S (NN dog)))", "')' follows the end of the tree"),
        ("(S (NN dog)) (S (NN cat))", "'(' follows the end of the tree"),
        (") (S (NN dog))", "a closing bracket has no opening one"),
        ("dog (S (NN dog))", "'dog' is in no bracket"),
        ("(S (NP dog cat))", "one bracket holds the words 'dog' and 'cat'"),
        ("(S (NP dog (NN cat)))", "the word 'dog' stands beside constituents"),
        ("(S (NP (NN cat) dog))", "the word 'dog' stands beside constituents"),
        ("(S (NP (-NONE- *) dog))", "the word 'dog' stands beside constituents"),
        ("(S (NP) (NN dog))", "the bracket (NP is empty"),
        ("(S ((NN dog)))", "a bracket within the tree has no label"),
        ("(S () (NN dog))", "the bracket ( is empty"),
        ("(TOP (S (NN dog)) (TOP (S (NN cat))))", "TOP occurs inside a tree"),
        ("(TOP dog)", "the word 'dog' has no tag"),
        ("(S (NP (-NONE- *)))", "the tree has no words"),
        ("", "the tree has no words"),
        ("(" * 1000 + "NN dog" + ")" * 1000, f"more than {DEEPEST} nested brackets"),
    ],
)
def test_what_is_no_tree_is_refused(text: str, problem: str):
    with pytest.raises(TreeError) as error:
        parse_tree(text)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("symbols", "problem"),
    [
        ("( XX )NP XX", "there are more leaves than the 1 words"),
        ("( )NP XX", ")NP closes an empty constituent"),
        ("( XX", "unclosed brackets: 1"),
        ("XX )NP", "a closing bracket has no opening one"),
        ("(NP XX )VP", "(NP is closed by )VP"),
        ("", "there are fewer leaves than the 1 words"),
        ("( XX )", "( is closed by )"),
        ("( NN )NP =(dog", "the tag NN has no word"),
        ("=(dog", "=(dog has no tag"),
        ("NN =(dog NN", "the tag NN has no word"),
        ("NN =(dog NN =(dog", "there are more leaves than the 1 words"),
    ],
)
def test_what_is_no_sequence_is_refused(symbols: str, problem: str):
    with pytest.raises(TreeError) as error:
        from_sequence(symbols.split(), ["dog"])
    assert problem in str(error.value)


@given(st.lists(WORDS, min_size=1))
def test_brackets_in_words_are_spelled_and_read_again(words: list[str]):
    written = [escape_word(word) for word in ["(", *words, "a)"]]
    assert not {"(", ")"} & set("".join(written))
    sentence = to_sentence(written)
    assert sentence.startswith("( ")
    assert sentence.endswith(" a)")


def test_trees_are_cut_by_their_brackets():
    lines = b"( (S\n  (NN a)\n )\n)\n\n(S (NN b))\n(S\n(NN c))\n".splitlines(keepends=True)
    assert [(line, str(parse_tree(text.decode()))) for line, text in cut_trees(lines)] == [
        (1, "(TOP (S (NN a)))"),
        (6, "(TOP (S (NN b)))"),
        (7, "(TOP (S (NN c)))"),
    ]


def read_pairs(path: Path, *, labelled: bool = False) -> tuple[list[tuple[str, str]], list[str]]:
    given = Input(files=(path,), format="trees", labelled=labelled)
    decoded = [decode_block(block, given) for block in read_blocks(0, given)]
    pairs = [pair for one in decoded for pair in zip(one.source, one.target, strict=True)]
    return pairs, [str(problem) for one in decoded for problem in one.problems]


def test_bad_trees_are_named_by_file_and_line(tmp_path: Path):
    path = tmp_path / "bank.mrg"
    path.write_bytes(
        b"(S (NN a))\n(S (NN b)\n(S (NN c))\n(S (NP d (NN e)))\n(S (NN \xff))\n\n(S (NN f)))\n(S (NN g))\n(S (NN h)\n"
    )
    pairs, problems = read_pairs(path)
    assert [source for source, _ in pairs] == ["a", "c", "g"]
    assert sorted(problem.split(": ")[0] for problem in problems) == [f"{path}:{line}" for line in (2, 4, 5, 7, 9)]
    # Spread over lines, a tree that lacks a bracket holds all that follow.
    path.write_text("( (S\n (NN a)))\n( (S\n (NN b))\n( (S\n (NN c)))\n", encoding="utf-8")
    pairs, problems = read_pairs(path)
    assert [source for source, _ in pairs] == ["a", "c"]
    assert [problem.split(": ")[0] for problem in problems] == [f"{path}:3"]


def test_a_pair_is_the_sentence_and_its_brackets(tmp_path: Path):
    path = tmp_path / "bank.mrg"
    path.write_text("(TOP (NP (NN dog) (PRN (-LRB- -LRB-) (NN cat) (-RRB- -RRB-))))\n", encoding="utf-8")
    assert read_pairs(path)[0] == [("dog ( cat )", "( XX ( XX XX XX )PRN )NP")]
    assert read_pairs(path, labelled=True)[0] == [("dog ( cat )", "(NP XX (PRN XX XX XX )PRN )NP")]
