"""Where kernels compute, and Triton's interpreter without a search through its language at every call in a kernel."""

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton.language as tl
from random_batches import DEVICE
from triton.runtime import interpreter

NOTHING = SimpleNamespace(restore=lambda: None)


@cache
def languages(function: Any) -> list[Any]:
    """Return the modules of Triton's language that a function sees."""
    return [module for module in (tl, tl.core) if any(value is module for value in function.__globals__.values())]


begin: Any = getattr(interpreter, "_patch_lang", None)
if begin:

    def begin_once(function: Any) -> Any:
        """Patch the language as Triton does before it interprets a function, unless that is done already."""
        done = not any(tl.core.is_builtin(module.load) for module in languages(function))
        return NOTHING if done else begin(function)

    interpreter._patch_lang = begin_once


@pytest.fixture
def on_device() -> Iterator[None]:
    """Make new tensors where kernels compute."""
    torch.set_default_device(DEVICE)
    yield
    torch.set_default_device(None)
