"""What random expressions of CEL are made of. Types are texts: `int`, `list(string)`."""

from typing import Final

NUMBERS: Final = ("int", "uint", "double")
SCALARS: Final = (*NUMBERS, "bool", "string", "bytes")
TIMES: Final = ("duration", "timestamp")
KEYS: Final = ("string", "int", "bool", "uint")
MAP_KEYS: Final = {
    "string": ('"a"', "'b'", '"12"', "''"),
    "int": ("0", "1", "-1", "9223372036854775807"),
    "uint": ("0u", "1u", "2u", "18446744073709551615u"),
    "bool": ("true", "false"),
}
LITERALS: Final = {
    "int": (
        "0 1 2 3 -1 7 -7 10 0x1F -0x10 9223372036854775807 -9223372036854775808 "
        "9223372036854775806 4611686018427387904 3037000500 -3037000500 1000000000000"
    ).split(),
    "uint": "0u 1u 2u 3u 5u 0x2Au 18446744073709551615u 9223372036854775808u 4294967296u".split(),
    "double": (
        "0.0 1.0 -1.0 0.5 2.0 1.5 -2.5 .25 3e2 1e-3 1e19 -1e19 9.2e18 -0.0 123456.75"
    ).split(),
    "bool": ("true", "false"),
    "string": (
        "''", '"a"', '"b"', '"ab"', "'aBc'", '"a,b,c"', "'12'", '"-3"', '"1.5"', '"true"',
        "' x '", r'"\n\t"', r'r"\d+"', '"é"', '"日本語"', '"😀x"', r'"\u00e9\x41\101"',
        "'''q'\"'''", '"aaa"', '"Zz"', '"model"', '"1h"', '"2024-02-29T12:30:00Z"',
    ),
    "bytes": ("b''", 'b"a"', 'b"ab"', r'b"\xff"', r'b"\303\251"', 'b"é"', "b'abc'"),
    "duration": tuple(
        f"duration('{text}')" for text in
        "0s 1s -1s 1.5s 90m 1h30m 100ms 1h -2h45m 3600s 1us 250ns 720h".split()
    ),
    "timestamp": tuple(
        f"timestamp('{text}')" for text in (
            "1970-01-01T00:00:00Z 2024-02-29T12:30:00Z 2000-12-31T23:59:59.999Z "
            "1969-12-31T23:59:59Z 2023-03-26T00:30:00Z 9999-12-31T23:59:59Z "
            "0001-01-01T00:00:00Z 2026-06-07T08:09:10.123456789Z"
        ).split()
    ),
}  # fmt: skip
TIME_TEXTS: Final = (
    "'1h'", "'1h2m3.5s'", "'-1.5ms'", "'.5s'", "'1.s'", "'1'", "'h'", "'1h 2m'", "'720h'",
    "'2024-02-29T12:30:00Z'", "'2023-02-29T12:30:00Z'", "'2024-02-29T12:30:00.5+01:30'",
    "'2024-02-29 12:30:00Z'", "'10000-01-01T00:00:00Z'", "'2024-13-01T00:00:00Z'", "''",
)  # fmt: skip
CONVERTIBLE: Final = {
    "int": ("int", "uint", "double", "string", "timestamp"),
    "uint": ("int", "uint", "double", "string"),
    "double": ("int", "uint", "double", "string"),
    "bool": ("bool", "string"),
    "string": ("string", "bool", "int", "uint", "double", "bytes"),
    "bytes": ("bytes", "string"),
    "duration": ("duration", "string"),
    "timestamp": ("timestamp", "string", "int"),
}
PATTERNS: Final = ('"a"', '"^[a-z]+$"', "r'\\d+'", '"b|c"', '"."', '"(?i)AB"', '"^$"', '"x*"')
FORMATS: Final = (
    ("%s", ("int", "uint", "bool", "string")), ("%d", ("int", "uint")),
    ("%x", ("int", "string", "bytes", "uint")),
    ("%X", ("int", "string")), ("%o", ("int", "uint")), ("%b", ("int", "bool", "uint")),
    ("%%", ()), ("é=", ()),
)  # fmt: skip
TIME_PARTS: Final = (
    "getFullYear getMonth getDayOfYear getDayOfMonth getDate getDayOfWeek getHours getMinutes "
    "getSeconds getMilliseconds"
).split()
TYPE_NAMES: Final = (
    "int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type",
    "google.protobuf.Duration", "google.protobuf.Timestamp",
)  # fmt: skip

# What a device says: values of types that only evaluation knows.
DEVICE: Final = {
    "int": ('device.attributes["gpu.example.com"].numa', 'device.attributes["gpu.example.com"].x'),
    "string": (
        'device.attributes["gpu.example.com"].model',
        'device.attributes["gpu.example.com"]["model"]',
        'device.attributes["other.example.com"].root',
    ),
    "bool": (
        'device.attributes["gpu.example.com"].healthy',
        'device.attributes["other.example.com"].missing',
    ),
}
