"""Formats of texts in custom resources."""

import pytest

from stower.api.custom_values import value_faults
from stower.api.formats import is_of_format


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("bsonobjectid", ["507f1f77bcf86cd799439011"], ["507f1f77bcf86cd79943901", "x" * 24]),
        ("byte", ["YQ==", "YWI=", "YWJj"], ["", "YQ", "YQ==\n", "!!!!"]),
        ("cidr", ["10.0.0.0/8", "010.0.0.1/8", "2001:db8::/32"], ["10.0.0.0", "10.0.0.0/33"]),
        ("creditcard", ["4111-1111-1111-1111"], ["4111111111111112", "1"]),
        ("date", ["2024-02-29", "0000-01-01"], ["2023-02-29", "2024-2-29", "20240229"]),
        ("date-time", ["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.5+01:00"],
         ["2024-01-02T24:00:00Z", "2024-01-02T03:04:05", "2024-01-02 03:04:05Z", "x"]),
        ("duration", ["1h2m", "-1.5h", "0", "3 days", "2 weeks", "10 Minutes", ".5s"],
         ["", "1", "h", "1 fortnight"]),
        ("email", ["a@b", "Name <a.b@c.d>", '"x y"@c'], ["a", "a@", "a b@c", "<a@b"]),
        ("hexcolor", ["#fff", "A0B1C2"], ["#ffff", "red"]),
        ("hostname", ["a", "a-b.example.com", "1.example"], ["-a", "a.b-", "a_b", "a" * 64]),
        ("ipv4", ["10.0.0.1", "010.0.0.1", "::ffff:1.2.3.4"], ["10.0.0", "::1"]),
        ("ipv6", ["::1", "2001:db8::1"], ["10.0.0.1", ":::", "fe80::1%eth0"]),
        ("isbn", ["0321751043", "978-0321751041"], ["0321751044", "9780321751042"]),
        ("mac", ["01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-ab-cd-ef"],
         ["01:23:45:67:89", "01:23-45:67:89:ab", "0123.4567"]),
        ("password", ["", "any"], []),
        ("rgbcolor", ["rgb(0, 255,17)"], ["rgb(256,0,0)", "rgb(0,0)"]),
        ("ssn", ["123-45-6789"], ["123456789", "123-45-678"]),
        ("uri", ["http://a/b?c", "/a", "urn:a", "*", "http://[::1]:80/"],
         ["", "a/b", ":a", "http://a:x/", "http://a b/", "/%zz"]),
        ("uuid", ["01234567-89AB-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdef"],
         ["01234567-89ab-cdef-0123-456789abcde"]),
        ("uuid4", ["01234567-89ab-4def-8123-456789abcdef"],
         ["01234567-89ab-3def-8123-456789abcdef"]),
        ("k8s-short-name", ["a-b"], ["a.b", "A", "a" * 64]),
        ("k8s-long-name", ["a.b"], ["A", "a..b", "a" * 254]),
        ("of-our-own", ["", "any"], []),
    ],
)  # fmt: skip
def test_formats(name: str, good: list[str], bad: list[str]) -> None:
    assert [] == [text for text in good if not is_of_format(text, name)]
    assert [] == [text for text in bad if is_of_format(text, name)]


def test_the_text_of_a_fault_is_upstreams() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    (fault,) = value_faults(schema, {"at": "no"}, "spec")
    assert 'Invalid value: "no": spec.at in body must be of type date-time: "no"' == fault.message
