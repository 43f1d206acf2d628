"""Print tables: with rich in a terminal, as aligned text elsewhere."""

import sys
from collections.abc import Iterator, Sequence


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns: the first and the last flush left, the others flush right."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, collapse_padding=True)
        *widths, _ = _widths([header, *rows])
        # In a narrow terminal only the last column is cut short.
        for column, (name, width) in enumerate(zip(header, widths)):
            table.add_column(name, justify="right" if column else "left", min_width=width, no_wrap=True)
        table.add_column(header[-1], no_wrap=True)
        for row in rows:
            table.add_row(*row)
        Console(markup=False, highlight=False).print(table)
    else:
        print("\n".join(_aligned([header, *rows])))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    first, *middle, _ = _widths(rows)
    for name, *cells, summary in rows:
        line = [name.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, middle)), summary]
        yield "  ".join(line).rstrip()


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows)]
