"""Texts with personal data and texts that only look like it, and any mixture of both."""

from hypothesis import strategies as st

POSITIVE = [
    ("Write to jane.doe+mill@mail.planted-bread.co.uk.", "email", "jane.doe+mill@mail.planted-bread.co.uk"),
    ("(mailto:a_b@planted.de), or", "email", "a_b@planted.de"),
    ("To: Jane <jane@planted.org>", "email", "jane@planted.org"),
    ("mail me at jane@planted.org.Then", "email", "jane@planted.org"),
    ("12345678@qq.com", "email", "12345678@qq.com"),
    ("Login from 83.12.44.99, port 22", "ip", "83.12.44.99"),
    ("http://83.12.44.99:8080/", "ip", "83.12.44.99"),
    ("the server 8.12.4.9 is down", "ip", "8.12.4.9"),
    ("[2a02:8109:8a80:12::77]:443", "ip", "2a02:8109:8a80:12::77"),
    ("Tel. (212) 555-0123 or", "phone", "(212) 555-0123"),
    ("call 1-800-555-0199.", "phone", "1-800-555-0199"),
    ("212.555.0123 24 hours", "phone", "212.555.0123"),
    ("phone 212 555 0123", "phone", "212 555 0123"),
    ("Fax: 212.555-0123", "phone", "212.555-0123"),
    ("Fax: 2125550123", "phone", "2125550123"),
    ("from +44 (0)20 7946 0123,", "phone", "+44 (0)20 7946 0123"),
    ("(+49) 30 23125 123", "phone", "(+49) 30 23125 123"),
    ("+33\u00a01\u00a099\u00a000\u00a012\u00a034", "phone", "+33\u00a01\u00a099\u00a000\u00a012\u00a034"),
    ("+1 212\u2013555\u20130123", "phone", "+1 212\u2013555\u20130123"),
    ("IBAN DE89 3704 0044 0532 0130 00 BIC", "iban", "DE89 3704 0044 0532 0130 00"),
    ("GB82WEST12345698765432", "iban", "GB82WEST12345698765432"),
    ("card 4539 5787 6362 1486, thank you", "credit_card", "4539 5787 6362 1486"),
    ("card 4539578763621486", "credit_card", "4539578763621486"),
    ("key='AKIAFAKEQWERTYUIOPAS'", "api_key", "AKIAFAKEQWERTYUIOPAS"),
]

NEGATIVE = [
    # addresses of nobody, logins, copies, code, file names
    *("user@example.com", "me@localhost", "a@mill.test", "root@build-7", "git@github.com:a/b.git", "hg@planted.org"),
    *("scp f jane@planted.org:/srv", "ssh://jane@planted.org/x", "https://jane:pw@planted.org/", "@media print"),
    *("@app.route('/')", "icon@2x.zip", "react@16.0.1", "x = a@b.to(device)", "A@B.T", "%s@%s.com", "a..b@planted.org"),
    *("https://medium.com/@jane.doe", "jane@planted", "Message-ID: <abc@planted.org>", "a@b.c@planted.org"),
    *(
        "20150521101614.GA10889@planted.org",
        "52D44CC6.4050707@planted.org",
        "https://lore.kernel.org/r/CAHO5Pa3F2MjfTtf=YJ9@mail.gmail.com",
    ),
    # versions, sections, networks, times
    *("version 83.12.44.99", "Chrome/83.12.44.99", "v83.12.44.99", "4.1.2.3", "36.2.1.3. Scan", "libx-83.12.44.99"),
    *("83.12.44.99.1", "1.3.6.1.4.1.311", "83.12.44.0/24", "83.12.44.0", "10.1.2.3", "192.0.2.7", "255.255.255.0"),
    *("8.8.8.8", "083.012.044.099", "83.12.44.299", "83.12.44.99-1ubuntu", "==83.12.44.99", "83.12.44.99.example.org"),
    *(
        "std::dec::abcd",
        "2001:db8::1",
        "fe80::1",
        "12:34:56",
        "2024::",
        "20:24:11:05:12:33",
        "2a02:8109::/32",
        "2001:4860:4860::8888",
    ),
    # numbers
    *("1867-1952", "2024-01-15 10:30", "20240115103000", "978-0-306-40615-7", "0-306-40615-2", "4006381333931"),
    *("DFARS 252.227-7013", "212-555-0123-4567", "order 2125550123", "212 555 0123 212 555 0188", "1-2-3-4-5-6-7-8"),
    *("x+44207946012", "2125550123.45", "$212-555-0123", "+12345678901", "555-0123", "0x2125550123"),
    *("550e8400-e29b-41d4-a716-446655440000", "3.14159265358979", "1,212,555,0123", "1700000000", "1700000000000"),
    *(
        "4111 1111 1111 1111",
        "4539 5787 6362 1487",
        "4539-5787 63621486",
        "0.4539578763621486",
        "1, 4539578763621486",
        "rng(4539578763621486)",
        "4539578763621486, -53",
    ),
    *("DE88370400440532013000", "DE89 3704 0044 0532 0130 001", "XX89370400440532013000", "ISO 27001 2013 2017 2022"),
    # keys
    *(
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
        "sk_live_",
        "sk-learn-contrib-something-long",
        "AKIA",
        "hf_hub_download",
    ),
    "e83c5163316f89bfbde7d9ab23ca2e25604af290",
]

FRAGMENTS = st.sampled_from(
    [value for _, _, value in POSITIVE]
    + NEGATIVE
    + [beginning + "x" * 20 for beginning in ("rk-", "glp", "ghq_", "pypi-")]
    + [
        "@",
        ".",
        "-",
        "+",
        "(",
        ")",
        ":",
        "::",
        "/",
        "(at)",
        " [AT] ",
        "Bearer ",
        "secret_access_key=",
        "hooks",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "://",
        '"',
        "Tel. ",
        "49",
        "00",
        "4539 5787 ",
        "0123456",
        "٠١٢٣",
        "０３",
        "－",
        "电话",
        "例子.公司",
        " ",
        "\n",
        "1",
        "212",
        "2001",
        "DE89",
        "AKIA",
        "tel ",
        "version ",
        "é",
    ]
)
MIXED = st.lists(st.one_of(FRAGMENTS, st.text(max_size=4)), max_size=12).map("".join)
