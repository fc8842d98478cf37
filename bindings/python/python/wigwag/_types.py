"""Codecs: from Python values to JSON and back, by annotation.

The first that fits: pydantic's models, msgspec's structs, then dataclasses, TypedDicts, enums, dates, UUIDs, decimals and
bytes by the code below. Without an annotation a value is JSON itself. Nothing is ever pickled.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import json
import sys
import types
import typing
import uuid
from typing import Any, Callable, Literal, Union, get_args, get_origin

from .errors import InvalidPayload


class Misfit(Exception):
    """A value that does not fit, with the path to the part that does not."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


@dataclasses.dataclass(frozen=True)
class Codec:
    """How values of one type are written and read."""

    encode: Callable[[Any, str], Any]
    decode: Callable[[Any, str], Any]
    schema: Callable[[], dict[str, Any] | None]

    def dumps(self, value: Any, path: str) -> str:
        """The value as JSON text."""
        try:
            return json.dumps(self.encode(value, path), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        except ValueError as error:
            raise Misfit(path, f"{error}") from None

    def loads(self, text: str, path: str) -> Any:
        """The value that JSON text holds."""
        return self.decode(json.loads(text), path)


def plain(value: Any, path: str) -> Any:
    """Checks that a value is JSON, and names the part that is not."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, enum.Enum):
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            raise Misfit(path, f"{value} is not a number in JSON")
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, collections.abc.Mapping):
        for name in value:
            if not isinstance(name, str):
                raise Misfit(path, f"the name {name!r} is no string")
        return {name: plain(item, f"{path}[{json.dumps(name)}]") for name, item in value.items()}
    raise Misfit(path, f"{type(value).__qualname__} is not JSON; annotate its type, or give str, int, float, bool, list or dict")


def _same(value: Any, _path: str) -> Any:
    return value


PLAIN = Codec(plain, _same, lambda: None)


def codec_for(annotation: Any) -> Codec:
    """The codec for an annotation."""
    try:
        return _codec_for(annotation)
    except TypeError:  # Not hashable: a Literal of lists, an Annotated with a list.
        return _codec_for.__wrapped__(annotation)


@functools.lru_cache(maxsize=1024)
def _codec_for(annotation: Any) -> Codec:
    if annotation in (inspect.Parameter.empty, Any, None, type(None), object) or isinstance(annotation, (str, typing.TypeVar)):
        return PLAIN
    if _mentions(annotation, _is_pydantic):
        return _pydantic(annotation)
    if _mentions(annotation, _is_msgspec):
        return _msgspec(annotation)
    return _own(annotation)


def _mentions(annotation: Any, fits: Callable[[Any], bool]) -> bool:
    return fits(annotation) or any(_mentions(part, fits) for part in get_args(annotation))


def _is_pydantic(annotation: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _is_msgspec(annotation: Any) -> bool:
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _pydantic(annotation: Any) -> Codec:
    import pydantic

    adapter = pydantic.TypeAdapter(annotation)

    def decode(value: Any, path: str) -> Any:
        try:
            return adapter.validate_json(json.dumps(value))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise Misfit(path + "".join(_part(part) for part in first["loc"]), first["msg"]) from None

    def encode(value: Any, path: str) -> Any:
        try:
            return adapter.dump_python(adapter.validate_python(value), mode="json")
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise Misfit(path + "".join(_part(part) for part in first["loc"]), first["msg"]) from None

    return Codec(encode, decode, lambda: adapter.json_schema())


def _part(part: Any) -> str:
    return f"[{json.dumps(part)}]"


def _msgspec(annotation: Any) -> Codec:
    import msgspec

    def decode(value: Any, path: str) -> Any:
        try:
            return msgspec.convert(value, annotation, strict=False)
        except msgspec.ValidationError as error:
            raise Misfit(path, str(error)) from None

    def encode(value: Any, path: str) -> Any:
        builtins = msgspec.to_builtins(value)
        decode(builtins, path)
        return builtins

    return Codec(encode, decode, lambda: msgspec.json.schema(annotation))


_SCALARS: dict[Any, tuple[str, dict[str, Any]]] = {
    str: ("a string", {"type": "string"}),
    int: ("a whole number", {"type": "integer"}),
    float: ("a number", {"type": "number"}),
    bool: ("true or false", {"type": "boolean"}),
}


def _own(annotation: Any) -> Codec:  # noqa: C901
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return codec_for(args[0])
    if annotation in _SCALARS:
        return _scalar(annotation)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is Literal:
        return _checked(lambda value: value in args, f"one of {', '.join(map(repr, args))}", {"enum": list(args)})
    if annotation in (list, tuple, dict, collections.abc.Mapping, collections.abc.Sequence):
        return PLAIN
    if origin in (list, collections.abc.Sequence, collections.abc.Iterable, set, frozenset):
        return _items(codec_for(args[0]), list if origin in (collections.abc.Sequence, collections.abc.Iterable) else origin)
    if origin is tuple:
        return _items(codec_for(args[0]), tuple) if len(args) == 2 and args[1] is Ellipsis else _tuple(args)
    if origin in (dict, collections.abc.Mapping):
        return _mapping(codec_for(args[1]))
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            values = [member.value for member in annotation]
            names = ", ".join(map(repr, values))
            return _converted(annotation, lambda member: member.value, annotation, f"one of {names}", {"enum": values})
        if dataclasses.is_dataclass(annotation):
            return _object(annotation, {f.name: f for f in dataclasses.fields(annotation) if f.init})
        if typing.is_typeddict(annotation):
            return _typed_dict(annotation)
        for known, (write, read, what, schema) in _TEXTS.items():
            if annotation is known:
                return _converted(known, write, read, what, schema)
    return PLAIN


def _read_datetime(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


_TEXTS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any], str, dict[str, Any]]] = {
    dt.datetime: (dt.datetime.isoformat, _read_datetime, "a date and time", {"type": "string", "format": "date-time"}),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat, "a date", {"type": "string", "format": "date"}),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat, "a time of day", {"type": "string", "format": "time"}),
    dt.timedelta: (dt.timedelta.total_seconds, lambda s: dt.timedelta(seconds=s), "seconds", {"type": "number"}),
    uuid.UUID: (str, uuid.UUID, "a UUID", {"type": "string", "format": "uuid"}),
    decimal.Decimal: (str, decimal.Decimal, "a decimal as a string", {"type": "string"}),
    bytes: (lambda b: base64.b64encode(b).decode(), lambda t: base64.b64decode(t, validate=True), "base64", {"type": "string", "contentEncoding": "base64"}),
}  # fmt: skip


def _scalar(kind: type) -> Codec:
    what, schema = _SCALARS[kind]

    def check(value: Any, path: str) -> Any:
        fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise Misfit(path, f"want {what}, got: {value!r}")
        return plain(value, path)

    return Codec(check, check, lambda: schema)


def _checked(fits: Callable[[Any], bool], what: str, schema: dict[str, Any]) -> Codec:
    def check(value: Any, path: str) -> Any:
        if not fits(value):
            raise Misfit(path, f"want {what}, got: {value!r}")
        return value

    return Codec(check, check, lambda: schema)


def _converted(kind: type, write: Callable[[Any], Any], read: Callable[[Any], Any], what: str, schema: dict[str, Any]) -> Codec:
    def encode(value: Any, path: str) -> Any:
        if not isinstance(value, kind):
            raise Misfit(path, f"want {kind.__qualname__}, got: {value!r}")
        return write(value)

    def decode(value: Any, path: str) -> Any:
        try:
            return read(value)
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            raise Misfit(path, f"want {what}, got: {value!r}") from None

    return Codec(encode, decode, lambda: schema)


def _union(args: tuple[Any, ...]) -> Codec:
    codecs = [codec_for(arg) for arg in args if arg is not type(None)]
    optional = type(None) in args

    def first(value: Any, path: str, which: str) -> Any:
        if value is None and optional:
            return None
        last: Misfit | None = None
        for codec in codecs:
            try:
                return getattr(codec, which)(value, path)
            except Misfit as misfit:
                last = last if last is not None and len(last.path) > len(misfit.path) else misfit
        raise last or Misfit(path, f"got: {value!r}")

    def schema() -> dict[str, Any] | None:
        parts = [codec.schema() for codec in codecs]
        if any(part is None for part in parts):
            return None
        shown = [part for part in parts if part is not None] + ([{"type": "null"}] if optional else [])
        return shown[0] if len(shown) == 1 else {"anyOf": shown}

    return Codec(lambda v, p: first(v, p, "encode"), lambda v, p: first(v, p, "decode"), schema)


def _items(item: Codec, made: Any) -> Codec:
    def encode(value: Any, path: str) -> Any:
        if isinstance(value, (str, bytes)) or not isinstance(value, collections.abc.Iterable):
            raise Misfit(path, f"want a list, got: {value!r}")
        return [item.encode(part, f"{path}[{place}]") for place, part in enumerate(value)]

    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise Misfit(path, f"want a list, got: {value!r}")
        return made(item.decode(part, f"{path}[{place}]") for place, part in enumerate(value))

    return Codec(encode, decode, lambda: {"type": "array", "items": item.schema() or {}})


def _tuple(args: tuple[Any, ...]) -> Codec:
    codecs = [codec_for(arg) for arg in args]

    def each(value: Any, path: str, which: str) -> list[Any]:
        if not isinstance(value, (list, tuple)) or len(value) != len(codecs):
            raise Misfit(path, f"want a list of {len(codecs)}, got: {value!r}")
        return [getattr(c, which)(part, f"{path}[{n}]") for n, (c, part) in enumerate(zip(codecs, value))]

    def schema() -> dict[str, Any]:
        return {"type": "array", "prefixItems": [codec.schema() or {} for codec in codecs], "items": False}

    return Codec(lambda v, p: each(v, p, "encode"), lambda v, p: tuple(each(v, p, "decode")), schema)


def _mapping(value_codec: Codec) -> Codec:
    def each(value: Any, path: str, which: str) -> dict[str, Any]:
        if not isinstance(value, collections.abc.Mapping):
            raise Misfit(path, f"want an object, got: {value!r}")
        return {
            name: getattr(value_codec, which)(part, f"{path}[{json.dumps(name)}]")
            for name, part in plain_names(value, path).items()
        }

    def schema() -> dict[str, Any]:
        return {"type": "object", "additionalProperties": value_codec.schema() or {}}

    return Codec(lambda v, p: each(v, p, "encode"), lambda v, p: each(v, p, "decode"), schema)


def plain_names(value: Any, path: str) -> Any:
    """The mapping, if all its names are strings."""
    for name in value:
        if not isinstance(name, str):
            raise Misfit(path, f"the name {name!r} is no string")
    return value


def _object(kind: type, fields: dict[str, dataclasses.Field[Any]]) -> Codec:
    hints = typing.get_type_hints(kind, include_extras=True)
    codecs = {name: codec_for(hints.get(name, Any)) for name in fields}
    missing = dataclasses.MISSING
    required = [n for n, f in fields.items() if f.default is missing and f.default_factory is missing]

    def encode(value: Any, path: str) -> Any:
        if not isinstance(value, kind):
            raise Misfit(path, f"want {kind.__qualname__}, got: {value!r}")
        return {name: codec.encode(getattr(value, name), f"{path}.{name}") for name, codec in codecs.items()}

    def decode(value: Any, path: str) -> Any:
        return kind(**_fields(value, path, codecs, required))

    return Codec(encode, decode, lambda: _object_schema(kind.__name__, codecs, required))


def _typed_dict(kind: Any) -> Codec:
    hints = typing.get_type_hints(kind, include_extras=True)
    hints = {n: get_args(h)[0] if get_origin(h) in _QUALIFIERS else h for n, h in hints.items()}
    codecs = {name: codec_for(hint) for name, hint in hints.items()}
    required = sorted(kind.__required_keys__)

    def encode(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise Misfit(path, f"want an object, got: {value!r}")
        unknown = {n: plain(v, f"{path}[{json.dumps(n)}]") for n, v in plain_names(value, path).items() if n not in codecs}
        known = {n: codecs[n].encode(v, f"{path}[{json.dumps(n)}]") for n, v in value.items() if n in codecs}
        for name in required:
            if name not in value:
                raise Misfit(path, f"`{name}` is missing")
        return {**known, **unknown}

    return Codec(encode, lambda v, p: _fields(v, p, codecs, required), lambda: _object_schema(kind.__name__, codecs, required))


_QUALIFIERS = tuple(getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly") if hasattr(typing, name))


def _fields(value: Any, path: str, codecs: dict[str, Codec], required: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misfit(path, f"want an object, got: {value!r}")
    for name in required:
        if name not in value:
            raise Misfit(path, f"`{name}` is missing")
    return {name: codec.decode(value[name], f"{path}.{name}") for name, codec in codecs.items() if name in value}


def _object_schema(name: str, codecs: dict[str, Codec], required: list[str]) -> dict[str, Any]:
    properties = {field: codec.schema() or {} for field, codec in codecs.items()}
    return {"type": "object", "title": name, "properties": properties, "required": required}


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; empty if one of them cannot be resolved."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # An annotation may be anything, also a name that only type checkers know.
        return {}


def refused(misfit: Misfit, what: str, where: str | None) -> InvalidPayload:
    """The error for a value that does not fit."""
    place = f" ({where})" if where else ""
    pointer = misfit.path.replace("][", "/").replace("[", "/").replace("]", "").replace('"', "").replace(".", "/")
    return InvalidPayload(
        f"{what}: {misfit}{place}",
        hint="give what the annotation says, or change the annotation",
        fields=[{"path": pointer, "message": misfit.what}],
    )
