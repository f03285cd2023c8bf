"""Forms of secrets as their vendors document them, in the surroundings in which people leave them, and texts that look
like them and are none. Drawn by a seed; nothing here is a key of anyone."""

import base64
import json
import random
import string
import uuid

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URL = ALNUM + "-_"


def forms(seed: int) -> list[tuple[str, str, str]]:
    """(vendor and kind, text, the secret in it), a text for each form."""
    rng = random.Random(seed)

    def some(alphabet: str, count: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(count))

    def uid() -> str:
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))

    def b64(count: int) -> str:
        return base64.b64encode(rng.randbytes(count)).decode()

    def b64url(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    def word() -> str:
        return some(string.ascii_lowercase, 4) + some(string.digits, 2) + some("!*~", 1) + some(ALNUM, 5)  # as in URLs

    jwt = ".".join(
        [
            b64url(b'{"alg":"HS256","typ":"JWT"}'),
            b64url(json.dumps({"sub": some(HEX, 12), "iat": 1700000000}).encode()),
            b64url(rng.randbytes(32)),
        ]
    )
    pem_lines = "\n".join(b64(48) for _ in range(6))
    made = [
        ("AWS access key id", "export AWS_ACCESS_KEY_ID={}", "AKIA" + some(string.ascii_uppercase + "234567", 16)),
        ("AWS secret access key", "aws_secret_access_key = {}", some(ALNUM + "+/", 40)),
        ("AWS temporary key id", "aws_access_key_id = {}", "ASIA" + some(string.ascii_uppercase + "234567", 16)),
        ("Azure storage account key", "AccountName=shopdata;AccountKey={};EndpointSuffix=core", b64(64)),
        ("Azure client secret", "client_secret: {}", some(ALNUM, 3) + "8Q~" + some(ALNUM + "~._-", 34)),
        ("Alibaba Cloud key id", "AccessKeyId: {}", "LTAI" + some(ALNUM, 20)),
        ("Google API key", "https://maps.googleapis.com/maps/api/js?key={}", "AIza" + some(URL, 35)),
        ("Google OAuth client secret", '"client_secret": "{}"', "GOCSPX-" + some(URL, 28)),
        ("GitHub classic token", "git clone https://{}@github.com/me/repo.git", "ghp_" + some(ALNUM, 36)),
        ("GitHub fine-grained token", "GH_TOKEN={}", "github_pat_" + some(ALNUM, 22) + "_" + some(ALNUM, 59)),
        ("GitHub app token", "token is {} and lasts an hour", "ghs_" + some(ALNUM, 36)),
        ("GitLab personal token", "PRIVATE-TOKEN: {}", "glpat-" + some(URL, 20)),
        ("GitLab runner token", "gitlab-runner register --token {}", "glrt-" + some(URL, 20)),
        ("Slack bot token", "SLACK={}", f"xoxb-{some('123456789', 12)}-{some('123456789', 13)}-{some(ALNUM, 24)}"),
        ("Slack app token", "{}", f"xapp-1-A0{some(UPPER, 9)}-{some('123456789', 13)}-{some(HEX, 64)}"),
        (
            "Slack webhook",
            "curl -X POST {}",
            f"https://hooks.slack.com/services/T{some(UPPER, 8)}/B{some(UPPER, 10)}/{some(ALNUM, 24)}",
        ),
        ("Stripe secret key", "stripe.api_key = '{}'", "sk_live_" + some(ALNUM, 24)),
        ("Stripe restricted key", "rk: {}", "rk_live_" + some(ALNUM, 99)),
        ("Stripe webhook secret", "endpoint_secret = '{}'", "whsec_" + some(ALNUM, 32)),
        ("OpenAI project key", "OPENAI_API_KEY={}", "sk-proj-" + some(URL, 74) + "T3BlbkFJ" + some(URL, 74)),
        ("Anthropic key", "x-api-key: {}", "sk-ant-api03-" + some(URL, 93) + "AA"),
        ("Hugging Face token", "huggingface-cli login --token {}", "hf_" + some(string.ascii_letters, 34)),
        ("Replicate token", "REPLICATE_API_TOKEN={}", "r8_" + some(ALNUM, 37)),
        ("Groq key", "the key {} goes into the header", "gsk_" + some(ALNUM, 52)),
        ("npm token", "//registry.npmjs.org/:_authToken={}", "npm_" + some(ALNUM, 36)),
        ("PyPI token", "password = {}", "pypi-AgEIcHlwaS5vcmc" + some(URL, 150)),
        ("RubyGems key", ":rubygems_api_key: {}", "rubygems_" + some(HEX, 48)),
        ("Docker Hub token", "docker login -u me -p {}", "dckr_pat_" + some(URL, 27)),
        ("DigitalOcean token", "doctl auth init -t {}", "dop_v1_" + some(HEX, 64)),
        ("SendGrid key", "Authorization: Bearer {}", f"SG.{some(URL, 22)}.{some(URL, 43)}"),
        ("Mailgun key", "curl -s --user 'api:{}'", "key-" + some(HEX, 32)),
        ("Mailchimp key", "apikey: {}", some(HEX, 32) + "-us14"),
        ("Brevo key", "api-key: {}", f"xkeysib-{some(HEX, 64)}-{some(ALNUM, 16)}"),
        ("Twilio auth token", "auth_token = '{}'", some(HEX, 32)),
        ("Twilio API key", "sid {} for the sub-account", "SK" + some(HEX, 32)),
        (
            "Telegram bot token",
            "Use this token to access the HTTP API: {}",
            f"{some('123456789', 10)}:AA{some(URL, 33)}",
        ),
        (
            "Discord webhook",
            "url = {}",
            f"https://discord.com/api/webhooks/{some('123456789', 18)}/{some(URL, 68)}",
        ),
        (
            "Discord bot token",
            "client.run('{}')",
            f"{b64url(some('123456789', 18).encode())}.{some(URL, 6)}.{some(URL, 38)}",
        ),
        ("Shopify admin token", "X-Shopify-Access-Token: {}", "shpat_" + some(HEX, 32)),
        ("Square access token", "bearer {}", "EAAA" + some(URL, 60)),
        ("Databricks token", "DATABRICKS_TOKEN={}", "dapi" + some(HEX, 32)),
        ("HashiCorp Vault token", "export VAULT_TOKEN={}", "hvs." + some(URL, 95)),
        ("Terraform Cloud token", 'token = "{}"', f"{some(ALNUM, 14)}.atlasv1.{some(URL, 67)}"),
        ("Grafana service token", "Bearer {}", f"glsa_{some(ALNUM, 32)}_{some(HEX, 8)}"),
        ("New Relic user key", "NEW_RELIC={}", "NRAK-" + some(UPPER, 27)),
        ("Postman key", "X-API-Key: {}", f"PMAK-{some(HEX, 24)}-{some(HEX, 34)}"),
        ("Linear key", "Authorization: {}", "lin_api_" + some(ALNUM, 40)),
        ("Notion token", "notion = Client(auth='{}')", "ntn_" + some(string.digits, 11) + some(ALNUM, 35)),
        ("Airtable token", "AIRTABLE={}", f"pat{some(ALNUM, 14)}.{some(HEX, 64)}"),
        ("Atlassian token", "-u me@example.org:{}", "ATATT3xFfGF0" + some(URL, 172) + "=" + some(HEX.upper(), 8)),
        ("Supabase token", "SUPABASE_ACCESS_TOKEN={}", "sbp_" + some(HEX, 40)),
        ("Tailscale key", "tailscale up --auth-key={}", f"tskey-auth-k{some(ALNUM, 10)}CNTRL-{some(ALNUM, 32)}"),
        ("Pulumi token", "PULUMI_ACCESS_TOKEN={}", "pul-" + some(HEX, 40)),
        ("Sentry user token", "SENTRY_AUTH_TOKEN={}", "sntryu_" + some(HEX, 64)),
        ("Figma token", "X-Figma-Token: {}", "figd_" + some(URL, 40)),
        ("Dynatrace token", "Authorization: Api-Token {}", f"dt0c01.{some(UPPER, 24)}.{some(UPPER, 64)}"),
        ("age secret key", "{}", "AGE-SECRET-KEY-1" + some("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
        ("JSON web token", "Authorization: Bearer {}", jwt),
        ("RSA private key", "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", pem_lines),
        (
            "OpenSSH private key",
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
            pem_lines,
        ),
        ("password of a database's address", "DATABASE_URL=postgres://shop:{}@db.example.org:5432/shop", word()),
        ("password of MongoDB's address", "mongodb+srv://root:{}@cluster0.example.net/test", word()),
        ("DB_PASSWORD in a file of settings", "DB_HOST=localhost\nDB_USER=root\nDB_PASSWORD={}\n", word()),
        ("password in YAML", "username: admin\npassword: {}\nport: 5432", word()),
        ("curl with a user", "curl -u admin:{} https://example.org/api", word()),
        ("Basic authorization", "Authorization: Basic {}", base64.b64encode(f"admin:{word()}".encode()).decode()),
    ]
    return [(name, template.replace("{}", secret), secret) for name, template, secret in made]


def others(seed: int) -> list[str]:
    """200 texts without a secret."""
    rng = random.Random(seed)

    def some(alphabet: str, count: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(count))

    def b64(count: int) -> str:
        return base64.b64encode(rng.randbytes(count)).decode()

    kinds = [
        lambda: f"commit {some(HEX, 40)}\nAuthor: A. Person",
        lambda: f"md5: {some(HEX, 32)}  archive.tar.gz",
        lambda: f"sha256:{some(HEX, 64)} is the digest of the image",
        lambda: f'"integrity": "sha512-{b64(64)}"',
        lambda: f"request id {uuid.UUID(int=rng.getrandbits(128), version=4)} failed",
        lambda: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{some(ALNUM, 43)} me@laptop",
        lambda: f"https://www.youtube.com/watch?v={some(URL, 11)}",
        lambda: f"data:image/png;base64,{b64(90)}",
        lambda: "password: required, at least 12 characters",
        lambda: "DB_PASSWORD=${DB_PASSWORD}",
        lambda: "Set API_KEY=<your-api-key> before you start.",
        lambda: "The password: that is what everyone forgets first.",
        lambda: "curl -u USERNAME:PASSWORD https://example.org/api",
        lambda: f"ISBN 978-{some(string.digits, 1)}-{some(string.digits, 4)}-{some(string.digits, 4)}-7",
        lambda: f"Sequence {some('ACGT', 60)} of the sample",
        lambda: f"part no. {some(UPPER, 3)}-{some(string.digits, 6)}-{some(UPPER, 2)}, in stock",
        lambda: f"1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 game {some(string.digits, 8)}",
        lambda: f"the address bc1q{some('023456789acdefghjklmnpqrstuvwxyz', 38)} received coins",
        lambda: f"color: #{some(HEX, 6)}; background: #{some(HEX, 6)}",
        lambda: "Tokens such as ghp_ and xoxb- are prefixes; a real token follows them.",
    ]
    return [kinds[number % len(kinds)]() for number in range(200)]
