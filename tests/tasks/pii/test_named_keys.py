"""Random keys behind names that tell them, and values behind the same names that are no keys."""

import random
import string

import pytest

from gristmill.tasks.pii.named_keys import looks_random
from tests.tasks.pii.test_pii import masked

ALNUM = string.ascii_letters + string.digits
PLACES = (
    "COHERE_API_KEY={}",
    "export DOPPLER_TOKEN='{}'",
    'AZURE_CLIENT_SECRET="{}"',
    'api_key="{}",',
    '"refresh_token": "{}",',
    "define('SERVICE_API_KEY', '{}');",
    "AccountName=mill;AccountKey={};EndpointSuffix=core",
    "x-api-key: {}",
    "tool --region eu --token {} deploy",
    "<clientSecret>{}</clientSecret>",
    'name="api_key" value="{}"',
    "MAPBOX_KEY={}",
    "Your API key is {}.",
    "https://planted.org/v1?api_key={}&page=2",
    "signing-secret = {}",
    "$config['app_secret'] = '{}';",
)
NAMES = (
    "page_token = '{}'",
    'csrf_token: "{}"',
    "public_key={}",
    "cache_key = '{}'",
    '"AWS::IAM::AccessKey": "{}"',
    "the token was {}x(1)",
    "key = '{}'",
    "tokens: {}",
)
# What stands behind names of keys in code and in documentation, and is none.
VALUES = (
    "settings.api_key2",
    "getUserProfileById",
    "AuthenticationTokenProvider",
    "user-profile-cache-key-v2",
    "projects/mill-214/secrets/api-1/versions/3",
    "https://planted.org/keys/a1b2c3d4e5f6",
    "2024-01-15T10:20:30.000Z",
    "your_api_key_a1b2c3d4e5f6g7h8",
    "xxxxxxxxxxxxxxxxxxxx",
    "1234567890123456789012",
    "com.example.mill.security.Provider",
    "/run/secrets/client_secret_1",
    "0xdAC17F958D2ee523a2206206994597C13D831ec7",
    "ENV_VARIABLE_WITH_THE_KEY",
)


@pytest.mark.parametrize("alphabet, length", [(ALNUM, 32), ("0123456789abcdef", 32), (ALNUM + "-_", 43)])
def test_random_keys_are_masked_behind_their_names(alphabet, length):
    draw = random.Random(length)
    made = ["k" + "".join(draw.choices(alphabet, k=length)) + "7" for _ in PLACES for _ in range(20)]
    texts = [f"Settings.\n{place.format(made[20 * i + j])}" for i, place in enumerate(PLACES) for j in range(20)]
    missed = [text for text, left, key in zip(texts, masked(texts), made, strict=True) if key in left]
    assert len(missed) <= 0.05 * len(texts), missed[:10]


def test_random_text_behind_other_names_stays():
    draw = random.Random(5)
    texts = [name.format("".join(draw.choices(ALNUM, k=24))) for name in NAMES for _ in range(20)]
    assert masked(texts) == texts


@pytest.mark.parametrize("value", VALUES)
def test_other_values_behind_names_of_keys_stay(value):
    texts = [place.format(value) for place in PLACES]
    assert masked(texts) == texts


def test_words_with_numbers_do_not_look_random():
    draw = random.Random(3)
    words = "user profile service token provider factory handler config value version request".split()
    made = ["".join(w.title() for w in draw.choices(words, k=4)) + str(draw.randrange(10)) for _ in range(500)]
    assert sum(looks_random(each.encode()) for each in made) <= 5
