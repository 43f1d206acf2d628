"""The beam as a tree: every path has the model's own probability, and the path taken is the translation."""

import numpy as np
import pytest
from lookers import make_model, make_pairs

from transduce.config import SearchConfig
from transduce.decoding.beams import Ended, Record
from transduce.decoding.engines import Name, make_engine
from transduce.decoding.force import score_pairs
from transduce.decoding.search import Task, search, search_all
from transduce.seeing.tree import Node, make_tree
from transduce.text.subwords import END


def path_to(tree: list[Node], number: int) -> list[Node]:
    path: list[Node] = []
    while number >= 0:
        path.append(tree[number])
        number = tree[number].parent
    return path[::-1]


@pytest.mark.parametrize("name", ["torch", "native"])
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("tokens", [3, 9])
def test_every_path_has_the_probability_that_the_model_gives_it(name: Name, beam: int, tokens: int):
    model = make_model(seed=beam).float()
    sources = [source for source, _ in make_pairs([(6, 1), (4, 1), (9, 1), (5, 1), (7, 1), (3, 1)])]
    engine, config = make_engine(model, "cpu", name=name), SearchConfig(beam=beam, max_tokens=tokens)
    records: dict[int, Record] = {}
    found = dict(search(engine, [Task(source) for source in sources], config, (), records))
    plain = search_all(engine, [Task(source) for source in sources], config)
    ends = 0
    for number, source in enumerate(sources):
        (best,) = found[number]
        assert best.tokens.tolist() == plain[number][0].tokens.tolist()  # asking for a record changes nothing
        tree = make_tree(records[number])
        taken = [node for node in tree if node.taken]
        assert [node.token for node in taken] == [*best.tokens.tolist(), *([END] if best.ended else [])]
        np.testing.assert_allclose([node.log_probability for node in taken], best.token_scores, atol=1e-5)
        leaves = [place for place, node in enumerate(tree) if node.fate != "on"]
        paths = [path_to(tree, leaf) for leaf in leaves]
        forced = score_pairs(model, [(source, np.array([node.token for node in path])) for path in paths])
        for path, scores in zip(paths, forced):
            np.testing.assert_allclose([node.log_probability for node in path], scores, atol=1e-4)
            np.testing.assert_allclose([node.total for node in path], np.cumsum(scores), atol=1e-4)
        assert {node.fate for node in tree} <= {"ended", "dropped", "open", "on"}
        assert sum(node.fate == "open" for node in tree) <= beam
        for node in tree:
            assert (node.fate == "ended") == (node.token == END) == (node.score is not None)
        scores = [node.score for node in tree if node.score is not None]
        ends += len(scores)
        assert scores == sorted(scores, reverse=True)
        if best.ended:
            assert scores[0] == pytest.approx(best.score, abs=1e-5)
        for place, node in enumerate(tree):
            assert node.parent < place
            assert (node.fate == "on") == any(other.parent == place for other in tree)
    assert ends > 0 or beam == 1


def test_a_tree_by_hand():
    """Two lines: a b is chosen by its end, a c stays open, d is dropped; the second line has no continuation."""
    inf = np.inf
    record = Record(
        tokens=np.array([[10, 13], [11, 12]]),
        parents=np.array([[0, 0], [0, 0]]),
        sums=np.array([[-1.0, -2.0], [-1.5, -inf]]),
        ended=(Ended(2, 0, -2.5, -1.9), Ended(0, 0, -7.0, -7.0)),
    )
    assert make_tree(record) == [
        Node(-1, 10, -1.0, -1.0, "on", None, True),
        Node(-1, 13, -2.0, -2.0, "dropped", None, False),
        Node(0, 11, -0.5, -1.5, "on", None, True),
        Node(2, END, -1.0, -2.5, "ended", -1.9, True),
        Node(-1, END, -7.0, -7.0, "ended", -7.0, False),
    ]


def test_where_nothing_ended_the_best_line_is_taken():
    sums = np.array([[-1.0, -2.0], [-4.0, -3.0]])
    tree = make_tree(Record(np.array([[5, 6], [7, 8]]), np.array([[0, 0], [0, 1]]), sums, ()))
    assert [node.token for node in tree if node.taken] == [6, 8]
    assert [node.fate for node in tree] == ["on", "on", "open", "open"]
    stuck = Record(np.array([[5, 6], [0, 0]]), np.zeros((2, 2), int), np.array([[-1.0, -2.0], [-np.inf, -np.inf]]), ())
    assert [(node.token, node.taken) for node in make_tree(stuck)] == [(5, True), (6, False)]
    assert make_tree(Record(np.zeros((0, 2), int), np.zeros((0, 2), int), np.zeros((0, 2)), ())) == []
