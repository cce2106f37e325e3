"""What every client is asked for: a form whose every value is one of a few, so that any model can give it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Weather(BaseModel):
    """A report of the weather in a city."""

    city: Literal["Paris", "Rome"]
    sunny: bool


CITIES = ("Paris", "Rome")
QUESTION = "How is the weather? Once upon a time"
LIMITS = {"max_tokens": 60, "temperature": 0.7, "seed": 3}
