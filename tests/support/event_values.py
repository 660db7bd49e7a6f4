"""Valid and invalid values of each kind of field, with the stored value or the broken rule."""

from typing import Any, Final

from snapbid.events.fields import Kind

EMPTY: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
DIGEST: Final = "0123456789abcdef" * 4
PERSONAL_KEYS: Final = (
    "email", "phone", "phone_number", "first_name", "last_name", "full_name", "date_of_birth",
    "dob", "passport", "ssn", "national_id",
)  # fmt: skip

Row = tuple[Any, str]  # a value, and the rule that it breaks


def raw(text: str) -> dict[str, str]:
    return {"$raw": text}


def repeat(text: str, times: int) -> dict[str, list[Any]]:
    return {"$repeat": [text, times]}


VALID: Final[dict[Kind, Any]] = {
    Kind.TEXT: "some text",
    Kind.NUMBER: 12.5,
    Kind.FLAG: False,
    Kind.TIME: 1_789_000_000_000,
    Kind.HASH: DIGEST,
    Kind.IP: "203.0.113.7",
    Kind.CURRENCY: "EUR",
    Kind.COUNTRY: "MT",
    Kind.CALLING_CODE: "+44",
}

NOT_TEXT: Final[list[Row]] = [
    (value, "type") for value in (5, 1.5, True, ["text"], {"text": "text"}, raw("1e400"))
]
LONG: Final[list[Row]] = [("", "empty"), (repeat("x", 1025), "max_length")]
NOT_NUMBER: Final[list[Row]] = [
    (value, "type") for value in ("5", "", True, False, [5], {"value": 5})
]
INFINITE: Final[list[Row]] = [
    (raw("1e400"), "out_of_range"),
    (raw("9" * 400), "out_of_range"),
    (raw("-1e999"), "out_of_range"),
]
TIMES: Final[list[Row]] = [
    (0, "not_milliseconds"),
    (1_789_000_000, "not_milliseconds"),
    (1_789_000_000.5, "not_milliseconds"),
    (999_999_999_999, "not_milliseconds"),
    (10_000_000_000_000, "not_milliseconds"),
    (1_789_000_000_000_000, "not_milliseconds"),
    (-1_789_000_000_000, "not_milliseconds"),
    (1_789_000_000_000.5, "not_integer"),
]

WRONG: Final[dict[Kind, list[Row]]] = {
    Kind.TEXT: NOT_TEXT + LONG,
    Kind.CHOICE: [*NOT_TEXT, *LONG, ("no_such_value", "enum"), (" ", "enum"), ("win\n", "enum")],
    Kind.FLAG: [(value, "type") for value in (0, 1, "true", "", [True], {"value": True})],
    Kind.NUMBER: NOT_NUMBER + INFINITE,
    Kind.TIME: NOT_NUMBER + INFINITE + TIMES,
    Kind.HASH: [
        *NOT_TEXT,
        *LONG,
        (DIGEST[1:], "sha256_hex"),
        (DIGEST + "0", "sha256_hex"),
        (DIGEST[1:] + "g", "sha256_hex"),
        (DIGEST + "\n", "sha256_hex"),
        ("0x" + DIGEST[2:], "sha256_hex"),
        (EMPTY, "empty_hash"),
        (EMPTY.upper(), "empty_hash"),
        ("someone@example.com", "plaintext_pii"),
        (" Someone@Example.COM ", "plaintext_pii"),
        ("+447700900123", "plaintext_pii"),
        ("+44 7700 900-123", "plaintext_pii"),
        ("07700900123", "plaintext_pii"),
    ],
    Kind.IP: [
        *NOT_TEXT,
        *LONG,
        *(
            (value, "ip_address")
            for value in (
                "203.0.113", "203.0.113.256", "203.0.113.07", "203.0.113.7/32", " 203.0.113.7",
                "203.0.113.7:80", "1", "localhost", "::1%lo", "[::1]", "2001:db8::g", "1::2::3",
            )
        ),
    ],
    Kind.CURRENCY: [
        *NOT_TEXT,
        *LONG,
        *((value, "currency") for value in ("EURO", "EU", "ZZZ", "BTC", "€", " EUR", "978")),
    ],
    Kind.COUNTRY: [
        *NOT_TEXT,
        *LONG,
        *((value, "country_code") for value in ("UK", "uk", "EU", "ZZ", "XYZ", "M", "Malta",
                                                "470")),
    ],
    Kind.CALLING_CODE: [
        *NOT_TEXT,
        *LONG,
        *((value, "calling_code") for value in ("0", "0044", "+0044", "++44", "44 ", "999", "+",
                                                "GB", "+1242")),
    ],
}  # fmt: skip

# Accepted values, and what is stored for them.
RIGHT: Final[dict[Kind, list[tuple[Any, Any]]]] = {
    Kind.TEXT: [(" ", " "), ("Größe 😀", "Größe 😀"), (repeat("é", 1024), repeat("é", 1024))],
    Kind.CHOICE: [],
    Kind.FLAG: [(True, True), (False, False)],
    Kind.NUMBER: [(0, 0), (0.1, 0.1), (7, 7), (raw("7.0"), 7), (raw("1e2"), 100), (raw("-0.0"), 0),
                  (raw("9007199254740993"), raw("9007199254740992.0")),
                  (raw("1" + "0" * 30), raw("1e30"))],
    Kind.TIME: [(raw("1789000000000.0"), 1_789_000_000_000), (raw("1.789e12"), 1_789_000_000_000),
                (1_000_000_000_000, 1_000_000_000_000), (9_999_999_999_999, 9_999_999_999_999)],
    Kind.HASH: [(DIGEST.upper(), DIGEST)],
    Kind.IP: [(value, value) for value in ("0.0.0.0", "::", "2001:DB8::1", "::ffff:203.0.113.7")],
    Kind.CURRENCY: [("usd", "USD"), ("jPy", "JPY"), ("HRK", "HRK")],
    Kind.COUNTRY: [("mt", "MT"), ("MLT", "MT"), ("gbr", "GB"), ("GB", "GB")],
    Kind.CALLING_CODE: [("44", "+44"), ("1", "+1"), ("+356", "+356")],
}  # fmt: skip
