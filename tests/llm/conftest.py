"""Models that the tests of a text share: one with a cache, one whose state is one whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from liveshape.llm.language_model import LanguageModel


@pytest.fixture(scope="module")
def loaded() -> Iterator[LanguageModel]:
    from tests.llm.test_model import LAST
    from tests.support.llamas import program

    with LanguageModel.load(program(LAST)) as model:
        yield model


@pytest.fixture
def model(loaded: LanguageModel) -> LanguageModel:
    loaded.reset()
    return loaded


@pytest.fixture(scope="module")
def opaque() -> Iterator[LanguageModel]:
    """State that is no entry per token."""
    from tests.llm.test_model import recurrent

    with LanguageModel.load(recurrent()) as model:
        yield model
