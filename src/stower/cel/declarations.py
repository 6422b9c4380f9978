"""The declarations of all functions and operators that a selector may use, with their overloads, as
a table.

A line is `name: overload (types) result; ...`; a dot before the overload marks a method, whose
first type is the target. Must not know the implementations (library_*).

Source: cel-go common/stdlib and ext/, apiserver pkg/cel/library, as Kubernetes 1.36 combines them
(pkg/cel/environment/base.go): strings v2, lists v3, sets, optionals, bindings v0, two-variable
comprehensions, and Kubernetes' own.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from stower.cel.types import Type, parse_type

_ORDERED: Final = "int uint double bool duration timestamp string bytes".split()
_COMPARED: Final = (
    ("bool", "bool", "bool"), ("int64", "int", "int"), ("int64_double", "int", "double"),
    ("int64_uint64", "int", "uint"), ("uint64", "uint", "uint"),
    ("uint64_double", "uint", "double"), ("uint64_int64", "uint", "int"),
    ("double", "double", "double"), ("double_int64", "double", "int"),
    ("double_uint64", "double", "uint"), ("string", "string", "string"),
    ("bytes", "bytes", "bytes"), ("timestamp", "timestamp", "timestamp"),
    ("duration", "duration", "duration"),
)  # fmt: skip
_FORMATS: Final = (
    "dns1123Label dns1123Subdomain dns1035Label qualifiedName dns1123LabelPrefix "
    "dns1123SubdomainPrefix dns1035LabelPrefix labelValue uri uuid byte date datetime"
).split()
# In upstream's names of overloads, two types go by their long names.
_LONG: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}

_TABLE: Final = """
_?_:_: conditional (bool, A, A) A
_&&_: logical_and (bool, bool) bool
_||_: logical_or (bool, bool) bool
!_: logical_not (bool) bool
-_: negate_double (double) double; negate_int64 (int) int
@not_strictly_false: not_strictly_false (bool) bool
_==_: equals (A, A) bool
_!=_: not_equals (A, A) bool
_+_: add_bytes (bytes, bytes) bytes; add_double (double, double) double; add_duration_duration (duration, duration) duration; add_duration_timestamp (duration, timestamp) timestamp; add_timestamp_duration (timestamp, duration) timestamp; add_int64 (int, int) int; add_list (list(A), list(A)) list(A); add_string (string, string) string; add_uint64 (uint, uint) uint
_-_: subtract_double (double, double) double; subtract_duration_duration (duration, duration) duration; subtract_int64 (int, int) int; subtract_timestamp_duration (timestamp, duration) timestamp; subtract_timestamp_timestamp (timestamp, timestamp) duration; subtract_uint64 (uint, uint) uint
_*_: multiply_double (double, double) double; multiply_int64 (int, int) int; multiply_uint64 (uint, uint) uint
_/_: divide_double (double, double) double; divide_int64 (int, int) int; divide_uint64 (uint, uint) uint
_%_: modulo_int64 (int, int) int; modulo_uint64 (uint, uint) uint
_[_]: index_list (list(A), int) A; index_map (map(A, B), A) B; optional_list_index_int (optional(list(V)), int) optional(V); optional_map_index_value (optional(map(K, V)), K) optional(V)
_[?_]: list_optindex_optional_int (list(V), int) optional(V); optional_list_optindex_optional_int (optional(list(V)), int) optional(V); map_optindex_optional_value (map(K, V), K) optional(V); optional_map_optindex_optional_value (optional(map(K, V)), K) optional(V)
@in: in_list (A, list(A)) bool; in_map (A, map(A, B)) bool
size: size_bytes (bytes) int; .bytes_size (bytes) int; size_list (list(A)) int; .list_size (list(A)) int; size_map (map(A, B)) int; .map_size (map(A, B)) int; size_string (string) int; .string_size (string) int
type: type (A) type(A)
bool: bool_to_bool (bool) bool; string_to_bool (string) bool
bytes: bytes_to_bytes (bytes) bytes; string_to_bytes (string) bytes
double: double_to_double (double) double; int64_to_double (int) double; string_to_double (string) double; uint64_to_double (uint) double
duration: duration_to_duration (duration) duration; int64_to_duration (int) duration; string_to_duration (string) duration
dyn: to_dyn (A) dyn
int: int64_to_int64 (int) int; double_to_int64 (double) int; duration_to_int64 (duration) int; string_to_int64 (string) int; timestamp_to_int64 (timestamp) int; uint64_to_int64 (uint) int
string: string_to_string (string) string; bool_to_string (bool) string; bytes_to_string (bytes) string; double_to_string (double) string; duration_to_string (duration) string; int64_to_string (int) string; timestamp_to_string (timestamp) string; uint64_to_string (uint) string; ip_to_string (net.IP) string; cidr_to_string (net.CIDR) string
timestamp: timestamp_to_timestamp (timestamp) timestamp; int64_to_timestamp (int) timestamp; string_to_timestamp (string) timestamp
uint: uint64_to_uint64 (uint) uint; double_to_uint64 (double) uint; int64_to_uint64 (int) uint; string_to_uint64 (string) uint
contains: .contains_string (string, string) bool
endsWith: .ends_with_string (string, string) bool
startsWith: .starts_with_string (string, string) bool
matches: matches (string, string) bool; .matches_string (string, string) bool
getFullYear: .timestamp_to_year (timestamp) int; .timestamp_to_year_with_tz (timestamp, string) int
getMonth: .timestamp_to_month (timestamp) int; .timestamp_to_month_with_tz (timestamp, string) int
getDayOfYear: .timestamp_to_day_of_year (timestamp) int; .timestamp_to_day_of_year_with_tz (timestamp, string) int
getDayOfMonth: .timestamp_to_day_of_month (timestamp) int; .timestamp_to_day_of_month_with_tz (timestamp, string) int
getDate: .timestamp_to_day_of_month_1_based (timestamp) int; .timestamp_to_day_of_month_1_based_with_tz (timestamp, string) int
getDayOfWeek: .timestamp_to_day_of_week (timestamp) int; .timestamp_to_day_of_week_with_tz (timestamp, string) int
getHours: .timestamp_to_hours (timestamp) int; .timestamp_to_hours_with_tz (timestamp, string) int; .duration_to_hours (duration) int
getMinutes: .timestamp_to_minutes (timestamp) int; .timestamp_to_minutes_with_tz (timestamp, string) int; .duration_to_minutes (duration) int
getSeconds: .timestamp_to_seconds (timestamp) int; .timestamp_to_seconds_tz (timestamp, string) int; .duration_to_seconds (duration) int
getMilliseconds: .timestamp_to_milliseconds (timestamp) int; .timestamp_to_milliseconds_with_tz (timestamp, string) int; .duration_to_milliseconds (duration) int
charAt: .string_char_at_int (string, int) string
indexOf: .list_a_index_of_int (list(A), A) int; .string_index_of_string (string, string) int; .string_index_of_string_int (string, string, int) int
lastIndexOf: .list_a_last_index_of_int (list(A), A) int; .string_last_index_of_string (string, string) int; .string_last_index_of_string_int (string, string, int) int
lowerAscii: .string_lower_ascii (string) string
upperAscii: .string_upper_ascii (string) string
trim: .string_trim (string) string
replace: .string_replace_string_string (string, string, string) string; .string_replace_string_string_int (string, string, string, int) string
split: .string_split_string (string, string) list(string); .string_split_string_int (string, string, int) list(string)
substring: .string_substring_int (string, int) string; .string_substring_int_int (string, int, int) string
format: .string_format (string, list(dyn)) string
strings.quote: strings_quote (string) string
join: .list_join (list(string)) string; .list_join_string (list(string), string) string
find: .string_find_string (string, string) string
findAll: .string_find_all_string (string, string) list(string); .string_find_all_string_int (string, string, int) list(string)
slice: .list_slice (list(T), int, int) list(T)
flatten: .list_flatten (list(list(T))) list(T); .list_flatten_int (list(dyn), int) list(dyn)
lists.range: lists_range (int) list(int)
reverse: .list_reverse (list(T)) list(T)
distinct: .list_distinct (list(T)) list(T)
optional.of: optional_of (V) optional(V)
optional.ofNonZeroValue: optional_ofNonZeroValue (V) optional(V)
optional.none: optional_none () optional(V)
value: .optional_value (optional(V)) V
hasValue: .optional_hasValue (optional(V)) bool
or: .optional_or_optional (optional(V), optional(V)) optional(V)
orValue: .optional_orValue_value (optional(V), V) V
first: .list_first (list(V)) optional(V)
last: .list_last (list(V)) optional(V)
optional.unwrap: optional_unwrap (list(optional(V))) list(V)
unwrapOpt: .optional_unwrapOpt (list(optional(V))) list(V)
sets.contains: list_sets_contains_list (list(T), list(T)) bool
sets.equivalent: list_sets_equivalent_list (list(T), list(T)) bool
sets.intersects: list_sets_intersects_list (list(T), list(T)) bool
url: string_to_url (string) kubernetes.URL
isURL: is_url_string (string) bool
getScheme: .url_get_scheme (kubernetes.URL) string
getHost: .url_get_host (kubernetes.URL) string
getHostname: .url_get_hostname (kubernetes.URL) string
getPort: .url_get_port (kubernetes.URL) string
getEscapedPath: .url_get_escaped_path (kubernetes.URL) string
getQuery: .url_get_query (kubernetes.URL) map(string, list(string))
quantity: string_to_quantity (string) kubernetes.Quantity
isQuantity: is_quantity_string (string) bool
sign: quantity_sign (kubernetes.Quantity) int
isGreaterThan: .quantity_is_greater_than (kubernetes.Quantity, kubernetes.Quantity) bool; .semver_is_greater_than (kubernetes.Semver, kubernetes.Semver) bool
isLessThan: .quantity_is_less_than (kubernetes.Quantity, kubernetes.Quantity) bool; .semver_is_less_than (kubernetes.Semver, kubernetes.Semver) bool
compareTo: .quantity_compare_to (kubernetes.Quantity, kubernetes.Quantity) int; .semver_compare_to (kubernetes.Semver, kubernetes.Semver) int
asApproximateFloat: .quantity_get_float (kubernetes.Quantity) double
asInteger: .quantity_get_int (kubernetes.Quantity) int
isInteger: .quantity_is_integer (kubernetes.Quantity) bool
add: .quantity_add (kubernetes.Quantity, kubernetes.Quantity) kubernetes.Quantity; .quantity_add_int (kubernetes.Quantity, int) kubernetes.Quantity
sub: .quantity_sub (kubernetes.Quantity, kubernetes.Quantity) kubernetes.Quantity; .quantity_sub_int (kubernetes.Quantity, int) kubernetes.Quantity
semver: string_to_semver (string) kubernetes.Semver; string_bool_to_semver (string, bool) kubernetes.Semver
isSemver: is_semver_string (string) bool; is_semver_string_bool (string, bool) bool
major: .semver_major (kubernetes.Semver) int
minor: .semver_minor (kubernetes.Semver) int
patch: .semver_patch (kubernetes.Semver) int
ip: string_to_ip (string) net.IP; .cidr_ip (net.CIDR) net.IP
isIP: is_ip (string) bool
ip.isCanonical: ip_is_canonical (string) bool
family: .ip_family (net.IP) int
isUnspecified: .ip_is_unspecified (net.IP) bool
isLoopback: .ip_is_loopback (net.IP) bool
isLinkLocalMulticast: .ip_is_link_local_multicast (net.IP) bool
isLinkLocalUnicast: .ip_is_link_local_unicast (net.IP) bool
isGlobalUnicast: .ip_is_global_unicast (net.IP) bool
cidr: string_to_cidr (string) net.CIDR
isCIDR: is_cidr (string) bool
containsIP: .cidr_contains_ip_string (net.CIDR, string) bool; .cidr_contains_ip_ip (net.CIDR, net.IP) bool
containsCIDR: .cidr_contains_cidr_string (net.CIDR, string) bool; .cidr_contains_cidr (net.CIDR, net.CIDR) bool
prefixLength: .cidr_prefix_length (net.CIDR) int
masked: .cidr_masked (net.CIDR) net.CIDR
format.named: format-named (string) optional(kubernetes.NamedFormat)
validate: .format-validate (kubernetes.NamedFormat, string) optional(list(string))
cel.@mapInsert: @mapInsert_map_key_value (map(K, V), K, V) map(K, V); @mapInsert_map_map (map(K, V), map(K, V)) map(K, V)
includes: .dra_includes_dyn_dyn (dyn, dyn) bool
"""  # noqa: E501


class Overload(NamedTuple):
    """One signature of a function: its argument types (the target first) and its result type."""

    id: str
    is_member: bool
    args: tuple[Type, ...]
    result: Type


def _overload(text: str) -> Overload:
    name, _, rest = text.strip().partition(" ")
    types, _, result = rest[1:].rpartition(") ") if ") " in rest else ("", "", rest[2:])
    args = parse_type(f"args({types})").params if types else ()
    return Overload(name.removeprefix("."), name[0] == ".", args, parse_type(result))


def _generate_lines() -> Iterator[str]:
    """Returns the lines that repeat one pattern for several types."""
    for function, prefix in (
        ("_<_", "less"), ("_<=_", "less_equals"), ("_>_", "greater"), ("_>=_", "greater_equals")
    ):  # fmt: skip
        rows = (f"{prefix}_{name} ({one}, {other}) bool" for name, one, other in _COMPARED)
        yield f"{function}: {'; '.join(rows)}"
    for function, types, result in (
        ("isSorted", _ORDERED, "bool"), ("sum", ["int", "uint", "double", "duration"], ""),
        ("max", _ORDERED, ""), ("min", _ORDERED, ""),
    ):  # fmt: skip
        short = "is_sorted" if function == "isSorted" else function
        rows = (f".list_{t}_{short}_{result or t} (list({t})) {result or t}" for t in types)
        yield f"{function}: {'; '.join(rows)}"
    sort = (f".list_{_LONG.get(t, t)}_sort (list({t})) list({t})" for t in _ORDERED)
    yield f"sort: {'; '.join(sort)}"
    by_keys = (
        f".list_{_LONG.get(t, t)}_sortByAssociatedKeys (list(T), list({t})) list(T)"
        for t in _ORDERED
    )
    yield f"@sortByAssociatedKeys: {'; '.join(by_keys)}"
    for name in _FORMATS:
        yield f"format.{name}: format.{name} () kubernetes.NamedFormat"


def _read_table(table: Iterator[str]) -> dict[str, tuple[Overload, ...]]:
    rows = (line.partition(": ") for line in table if line)
    return {name: tuple(_overload(o) for o in overloads.split(";")) for name, _, overloads in rows}


FUNCTIONS: Final = _read_table(iter(_TABLE.splitlines())) | _read_table(_generate_lines())
# Functions of the authorizer are declared, and cannot be called: there is no authorizer.
DECLARED_ONLY: Final = frozenset(
    "path group serviceAccount resource subresource namespace name check errored error allowed "
    "reason fieldSelector labelSelector".split()
)
# Names of types, which are values too.
TYPE_NAMES: Final = {
    "bool": "bool", "bytes": "bytes", "double": "double", "int": "int", "uint": "uint",
    "string": "string", "null_type": "null", "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp", "list": "list(dyn)", "map": "map(dyn, dyn)",
    "type": "type(dyn)", "optional_type": "optional(dyn)", "net.IP": "net.IP",
    "net.CIDR": "net.CIDR",
}  # fmt: skip
