"""Requests that the service's own schema allows or forbids: it never fails, and answers as announced."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from server import Running

PATHS = [
    *("/translate", "/detect", "/languages", "/translate_file", "/frontend/settings", "/health", "/metrics"),
    *("/v1/models", "/v1/translate", "/v1/stream", "/v1/continue", "/v1/attention"),
]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

load_all_checks()


@pytest.fixture(scope="session")
def announced(server: Running) -> schemathesis.BaseSchema:
    """The schema as the server gives it."""
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def test_every_endpoint_is_asked(announced: schemathesis.BaseSchema):
    assert set(announced) == set(PATHS)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", PATHS)
def test_every_answer_was_announced(announced: schemathesis.BaseSchema, path: str, mode: GenerationMode):
    (operation,) = announced[path].values()
    if mode == GenerationMode.NEGATIVE and not operation.body:
        return  # nothing is sent that might be wrong

    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(timeout=30)
        assert answer.status_code < 500, answer.text
        case.validate_response(answer, checks=CHECKS)

    ask()
