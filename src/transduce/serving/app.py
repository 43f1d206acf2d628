"""The HTTP service: LibreTranslate's endpoints, our own, metrics, health, and the page.

Requests are answered by desks, one for each model, which translate the texts of all clients together.
"""

import asyncio
import hmac
import html
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from transduce.decoding.options import Request as Wanted
from transduce.decoding.translator import Translation
from transduce.errors import TransduceError
from transduce.serving import forms
from transduce.serving.desk import BusyError, ClosedError, Desk
from transduce.serving.options import ServeConfig
from transduce.version import __version__
