"""Passwords behind words, options and headers; lines about passwords that hold none; numbers as libphonenumber writes
them."""

import base64
import random
import string

import phonenumbers
import pytest
from phonenumbers import PhoneNumber, PhoneNumberFormat, PhoneNumberType

from tests.tasks.pii.test_pii import Pii, found, masked

LETTERS = string.ascii_letters


def password(draw: random.Random) -> str:
    """As generators of passwords make them: letters, digits, and a mark among them."""
    kinds = (LETTERS, LETTERS, string.digits, "!#*%+~")
    made = [draw.choice(draw.choice(kinds)) for _ in range(12)]
    return draw.choice(LETTERS) + "".join(made) + draw.choice(string.digits) + draw.choice(LETTERS)


PLACES = (
    "password: {}",
    "password = {}",
    "DB_PASSWORD={}",
    "export MYSQL_PWD={}",
    "spring.datasource.password={}",
    '"smtp_password": "{}",',
    "'userPassword' => '{}',",
    "$config['db_passwd'] = '{}';",
    '<property name="password">{}</property>',
    '<add key="password" value="{}"/>',
    "Server=db;Uid=sa;Pwd={};",
    "Your password is {}.",
    "the passwd was {}, I think",
    "Passphrase: {}",
    "Das Passwort ist {}",
    "mot de passe : {}",
    "tool --user root --password {} --all",
    "tool --password={}",
    "curl -u jane:{} https://planted.org/",
    'curl --user "jane:{}" -X PUT https://planted.org/a',
    "curl -sS https://planted.org/a -u jane:{}",
    "Proxy-Authorization: Basic {}",
)


def test_passwords_are_found_where_something_says_so():
    draw = random.Random(8)
    given = [(place, password(draw)) for place in PLACES for _ in range(20)]
    secrets = [
        base64.b64encode(f"jane:{made}".encode()).decode() if "Basic" in place else made for place, made in given
    ]
    texts = [f"Settings.\n{place.format(made)}" for (place, _), made in zip(given, secrets, strict=True)]
    missed = [text for text, left, made in zip(texts, masked(texts), secrets, strict=True) if made in left]
    assert len(missed) <= 0.05 * len(texts), missed[:10]


# None of these lines holds a password; in each stand a word or an option that could lead to one.
HARMLESS = """
Choose a password: it should have 12 characters or more.
Password: required
Password: 8-20 characters
Password: must be at least 8 characters long, with 1 digit
The password is case sensitive.
The password was changed on 2024-01-15.
The passphrase is hashed by sha256 before it is stored.
Passwords are stored with argon2id.
password = getpass.getpass()
password = input("Password: ")
password=os.environ["DB_PASSWORD2"]
password: ${DB_PASSWORD}
password: {{ vault_db_password1 }}
password: <your-password1>
password: $(cat /run/secrets/db1)
DB_PASSWORD=$DB_PASSWORD1
DB_PASSWORD=%DB_PASS1%
DB_PASSWORD=changeme123
DB_PASSWORD=your_password_1
DB_PASSWORD=
DB_PASSWORD=xxxxxxxx1
DB_PASSWORD=example123
DB_PASSWORD_FILE=/run/secrets/db_password1
password: string
password: varchar(255)
password: VARCHAR2(40)
password: Optional[str] = None
password: str = Field(min_length=8)
password = self.password2
password = form.cleaned_data["password1"]
password=args.password1
password = User.objects.get(pk=1).password
if password == confirm_password: return 1
if (password1 != password2) throw new Error(400);
const password = document.getElementById("password1").value;
this.password = crypto.createHash("md5").update(text1).digest("hex");
<input type="password" name="pass1" id="pass1">
<label for="password">Password (8 characters)</label>
<input type="password" placeholder="min. 8 characters" autocomplete="new-password">
Forgot your password? Write to us before 2025-01-01.
Reset password: https://planted.org/reset/a1b2c3d4
Password reset: 24h
Password expires: 90 days
password_expires: 2025-01-01
password_reset_timeout: 86400
password_hash: bcrypt
password_length=16
passwd(5) - the password file
/etc/passwd:1: root
cat /etc/passwd | grep root1
getent passwd user1
The passwd command is in section 1.
Keyword: kqtz83mWx4r
keyword = field1_value2
The word is abc12345.
Crossword: 12across
Ein Stichwort: abc12345
Das Kennwort ist mindestens 8 Zeichen lang.
Passwort: mindestens 8 Zeichen
Das Passwort ist abgelaufen.
Mot de passe : 8 à 20 caractères
Le mot de passe est obligatoire.
L'impasse : rue 12bis3456
La classe : CM2bis2024
curl -u USERNAME:PASSWORD https://planted.org/api
curl -u user:password https://planted.org/api
curl -u $USER:$PASSWORD https://planted.org/api
curl -u "$USER:$TOKEN1" https://planted.org/api
curl -u <user>:<password1> https://planted.org/api
curl -u user https://planted.org/v1/items:batch2
curl https://planted.org/v1:8080/items -o out1
curl -sSL https://planted.org/install.sh | sh
curl -x http://proxy:3128 https://planted.org/
curl -d grant=code:abc12345 https://planted.org/
A biceps curl -u shaped, 3 sets: 12 each
Basic authentication is explained in RFC 7617.
Basic understanding
Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==
Authorization: Basic dXNlcm5hbWU6cGFzc3dvcmQ=
Authorization: Basic <credentials>
Authorization: Basic $(echo -n user:pass | base64)
Basic internationalisation
Basic TWFueSBoYW5kcyBtYWtl
BASIC 10PRINTHELLO20GOTO10
The basic arithmetic2024
password: null
password: false
password: ********
password: "••••••••"
Password: (none)
Password: see section 4.2
Password: same as user1
password: !vault |
password: &pw1 anchor
password: *pw1
password: [REDACTED1]
password: REDACTED
pwd: /home/jane1/src
$ pwd
OLDPWD=/home/jane1/src2
PWD=/srv/www/htdocs2
cwd_pwd = os.getcwd()
Password strength: 80bits
password min=8 max=64
--password-file /run/pw1
--password-stdin < token1.txt
tool --password
tool --password --user jane1
password policy: NIST-800-63b
The password is 12characters long.
password type: oauth2
passphrase: optional (v2)
password required pam_unix.so sha512
auth sufficient pam_unix.so nullok try_first_pass1
Password: TBA2024
"""
NUMBERED = (
    "Password {}: choose it yourself.",
    "Step {}: enter the password and press OK.",
    "The password field has {} characters.",
    "password_{}: string",
    "user{0} changed the password: user{0} was told.",
    "password = fields[{}]",
    "Ticket {}: password reset does not work.",
    "curl https://planted.org/page/{}",
    "Basic course {}: an introduction",
    "passwd: version {}.1.2",
)


def test_lines_about_passwords_hold_none():
    lines = HARMLESS.strip().split("\n")
    lines += [form.format(number) for form in NUMBERED for number in (1, 7, 12, 34, 80, 128, 512, 1024, 2048, 65536)]
    assert len(lines) >= 200
    wrong = [(line, spans) for line, spans in zip(lines, found(lines), strict=True) if spans]
    assert len(wrong) <= len(lines) / 200, wrong


@pytest.mark.parametrize("region", ["AU", "SG", "HK", "PE", "HU"])
def test_numbers_as_the_library_writes_them(region):
    """Its example of each type and others of the same beginning: in the form for callers abroad anywhere, in that for
    callers inside the region behind a word."""
    draw = random.Random(3)
    numbers = []
    for kind in (PhoneNumberType.FIXED_LINE, PhoneNumberType.MOBILE, PhoneNumberType.TOLL_FREE):
        example = phonenumbers.example_number_for_type(region, kind)
        national = phonenumbers.national_significant_number(example)
        numbers.append(example)
        for _ in range(200):
            digits = national[:-4] + "".join(draw.choice(string.digits) for _ in range(4))
            other = PhoneNumber(example.country_code, int(digits))
            if phonenumbers.is_valid_number(other) and len(set(digits[-7:])) > 1:
                numbers.append(other)
    step = Pii(regions=(region,))
    for form, places in (
        (PhoneNumberFormat.INTERNATIONAL, ("Our office {}, floor B", "{}")),
        (PhoneNumberFormat.E164, ("Our office {}, floor B",)),
        (PhoneNumberFormat.RFC3966, ("<a href='{}'>",)),
        (PhoneNumberFormat.NATIONAL, ("Tel. {}", "Call us on {}.")),
    ):
        written = [phonenumbers.format_number(number, form) for number in numbers]
        for place in places:
            spans = found([place.format(each) for each in written], step)
            told = [
                any(each.removeprefix("tel:") == text for _, text in some)
                for each, some in zip(written, spans, strict=True)
            ]
            missed = [each for each, hit in zip(written, told, strict=True) if not hit]
            assert len(missed) <= 0.01 * len(written), (place, missed[:5])
