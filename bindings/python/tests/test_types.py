"""Codecs: round trips, and the path of a value that does not fit."""

import dataclasses
import datetime as dt
import decimal
import enum
import typing
import uuid

import pytest

from wigwag import _types


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Inner:
    at: dt.datetime
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Outer:
    inner: Inner
    colour: Colour
    amount: decimal.Decimal
    data: bytes
    id: uuid.UUID
    either: int | None = None


class Options(typing.TypedDict, total=False):
    name: typing.Required[str] if hasattr(typing, "Required") else str
    count: int


VALUES = [
    (Outer, Outer(Inner(dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), ["x"]), Colour.RED, decimal.Decimal("1.10"), b"\x00\xff", uuid.UUID(int=7))),
    (list[Inner], [Inner(dt.datetime(2026, 1, 1))]),
    (dict[str, tuple[int, ...]], {"a": (1, 2)}),
    (tuple[int, str], (1, "a")),
    (Options, {"name": "a", "count": 1}),
    (typing.Literal["a", "b"], "a"),
    (dt.timedelta, dt.timedelta(hours=1)),
    (dt.date | None, dt.date(2026, 1, 1)),
    (typing.Any, {"a": [1, 2.5, None, True, "ü"]}),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=lambda value: str(value)[:20])
def test_what_goes_in_comes_out(annotation, value):
    codec = _types.codec_for(annotation)
    assert codec.loads(codec.dumps(value, "value"), "value") == value


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (typing.Any, {"a": [object()]}, 'value["a"][0]'),
        (typing.Any, {1: 2}, "value"),
        (typing.Any, float("nan"), "value"),
        (Inner, Inner("no"), "value.at"),
        (int, True, "value"),
        (list[int], ["a"], "value[0]"),
        (Options, {"count": "x", "name": ""}, 'value["count"]'),
    ],
)
def test_what_does_not_fit_is_named(annotation, value, path):
    with pytest.raises(_types.Misfit) as misfit:
        _types.codec_for(annotation).encode(value, "value")
    assert misfit.value.path == path


def test_schemas():
    assert _types.codec_for(Inner).schema() == {
        "type": "object",
        "title": "Inner",
        "properties": {"at": {"type": "string", "format": "date-time"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["at"],
    }
    assert _types.codec_for(typing.Any).schema() is None


def test_pydantic():
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        count: int
        at: dt.datetime

    codec = _types.codec_for(list[Model])
    value = [Model(count=1, at=dt.datetime(2026, 1, 1))]
    assert codec.loads(codec.dumps(value, "value"), "value") == value
    assert _types.codec_for(Model).schema()["required"] == ["count", "at"]
    with pytest.raises(_types.Misfit, match=r'value\[0\]\["count"\]'):
        codec.decode([{"count": "x", "at": "2026-01-01"}], "value")


def test_msgspec():
    msgspec = pytest.importorskip("msgspec")

    class Struct(msgspec.Struct):
        count: int

    codec = _types.codec_for(Struct)
    assert codec.loads(codec.dumps(Struct(3), "value"), "value") == Struct(3)
    assert "count" in str(codec.schema())
    with pytest.raises(_types.Misfit):
        codec.decode({"count": "x"}, "value")
