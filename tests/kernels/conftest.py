"""Triton's interpreter, without a search through its whole language at every call of a function within a kernel."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

NOTHING = SimpleNamespace(restore=lambda: None)


@cache
def languages(function: Any) -> list[Any]:
    """Triton's modules of its language that a function sees."""
    return [module for module in (tl, tl.core) if any(value is module for value in function.__globals__.values())]


begin: Any = getattr(interpreter, "_patch_lang", None)
if begin:

    def begin_once(function: Any) -> Any:
        """What Triton does before it interprets a function; nothing where it is done already."""
        done = not any(tl.core.is_builtin(module.load) for module in languages(function))
        return NOTHING if done else begin(function)

    interpreter._patch_lang = begin_once
