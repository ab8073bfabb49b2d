"""Secrets of every kind are removed, wherever they stand; what only looks like one stays."""

from __future__ import annotations

import base64
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from recalld.memory import redact, secret_kinds
from recalld.memory.capture import events

ROOT = Path(redact.__file__).resolve().parent.parent
ALNUM = string.ascii_letters + string.digits


def token(alphabet: str, low: int, high: int | None = None) -> st.SearchStrategy[str]:
    """A random run with at least one digit and one letter, as every generated key has."""
    return st.text(alphabet, min_size=low - 2, max_size=(high or low + 24) - 2).map(lambda text: text + "7q")


HEX = "0123456789abcdef"
WORD = ALNUM + "_-"
PASSWORD = token(ALNUM + "!#%*+-_.,~^", 8, 24).filter(lambda text: text[0] not in "-<$%*.x")
UUID = st.uuids().map(str)


def joined(*parts: str | st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, str]]:
    """(text, secret): literal parts are context, the strategy is the secret; a literal in front of it may belong to it."""
    strategies = [st.just(part) if isinstance(part, str) else part for part in parts]
    at = next(number for number, part in enumerate(parts) if not isinstance(part, str))
    return st.tuples(*strategies).map(lambda made: ("".join(made), made[at]))


SECRETS: dict[str, st.SearchStrategy[tuple[str, str]]] = {
    "openai": joined("sk-proj-", token(WORD, 24)),
    "anthropic": joined("sk-ant-api03-", token(WORD, 40)),
    "stripe": joined("sk_live_", token(ALNUM, 24)),
    "stripe-restricted": joined("rk_test_", token(ALNUM, 24)),
    "stripe-webhook": joined("whsec_", token(ALNUM, 24)),
    "github": joined("ghp_", token(ALNUM, 36)),
    "github-pat": joined("github_pat_", token(ALNUM + "_", 60)),
    "gitlab": joined("glpat-", token(WORD, 20)),
    "npm": joined("npm_", token(ALNUM, 36)),
    "pypi": joined("pypi-AgEIcHlwaS5vcmc", token(WORD, 60)),
    "sendgrid": joined("SG.", token(WORD, 22), "." + "a1" * 20),
    "huggingface": joined("hf_", token(ALNUM, 34)),
    "aws-id": joined("AKIA", st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16)),
    "aws-secret": joined("aws_secret_access_key = ", token(ALNUM + "/+", 40)),
    "google": joined("AIza", token(WORD, 35)),
    "google-refresh": joined("1//0", token(WORD, 40)),
    "google-oauth": joined("ya29.a0", token(WORD, 40)),
    "meta": joined("EAA", token(ALNUM, 60)),
    "telegram": joined("1234567890:AA", token(WORD, 33)),
    "telegram-bare": joined("123456789:", st.text(WORD, min_size=34, max_size=34)),
    "telegram-plain": joined("bot123456789:", st.text(WORD, min_size=34, max_size=34)),
    "gohighlevel": joined("pit-", UUID),
    "slack": joined("xoxb-123456789012-", token(ALNUM, 24)),
    "slack-app": joined("xapp-1-A0B1-", token(HEX, 40)),
    "slack-hook": joined("https://hooks.slack.com/services/", token(ALNUM + "/", 40)),
    "jwt": joined("eyJhbGciOiJIUzI1NiJ9.eyJ", token(WORD, 40), ".c2lnbmF0dXJl"),
    "azure": joined("AccountName=x;AccountKey=", token(ALNUM + "+/", 86), "=="),
    "azure-sas": joined("https://x.blob.core.windows.net/c?sv=1&sig=", token(ALNUM + "%", 40)),
    "vault": joined("hvs.", token(WORD, 30)),
    "digitalocean": joined("dop_v1_", token(HEX, 64).map(lambda text: text.replace("q", "a"))),
    "docker": joined("dckr_pat_", token(WORD, 27)),
    "bearer": joined("Authorization: Bearer ", token(ALNUM + "._~-", 20)),
    "basic": joined("Authorization: Basic ", st.text(ALNUM, min_size=6).map(lambda t: _base64(f"user:{t}"))),
    "basic-bare": joined("-H 'Basic ", st.text(ALNUM, min_size=6).map(lambda t: _base64(f"user:{t}")), "'"),
    "header": joined("X-Api-Key: ", token(ALNUM, 12)),
    "amz-header": joined("X-Amz-Security-Token: ", token(ALNUM, 40)),
    "private-token": joined("PRIVATE-TOKEN: ", token(WORD, 20)),
    "cookie": joined("Cookie: session=", token(ALNUM, 24)),
    "url": joined("postgres://app:", token(ALNUM + "!$-_", 8), "@db.internal:5432/x"),
    "password=": joined("password=", PASSWORD),
    "PASSWORD env": joined("export DB_PASSWORD='", PASSWORD, "'"),
    "json key": joined('{"api_key": "', PASSWORD, '"}'),
    "json password": joined('{"password": "', PASSWORD, '"}'),
    "json in json": joined('{\\"clientSecret\\": \\"', PASSWORD, '\\"}'),
    "yaml": joined("db_password: ", PASSWORD),
    "typed": joined('api_token: str = "', PASSWORD, '"'),
    "xml": joined("<password>", token(ALNUM, 8), "</password>"),
    "flag": joined("--password ", PASSWORD),
    "flag=": joined("--api-key=", PASSWORD),
    "curl -u": joined("curl -s -u admin:", token(ALNUM + "!#%-", 6), " https://x/y"),
    "curl -u below": joined("curl https://x/y \\\n\t-u admin:", token(ALNUM + "!#%-", 6)),
    "mysql -p": joined("mysql -u root -p", token(ALNUM, 8), " shop"),
    "sshpass": joined("sshpass -p '", token(ALNUM, 8), "' ssh h"),
    "netrc": joined("machine h login me password ", PASSWORD),
    "env key": joined("STRANGE_VENDOR_KEY=", token(ALNUM, 16)),
    "words": joined("SECRET=", st.lists(st.text("bdfghj", min_size=4, max_size=6), min_size=3, max_size=4).map("_".join)),
    "told": joined("the password is ", token(ALNUM, 10)),
    "near": joined("use this access token: `", token(ALNUM, 40).map(lambda text: "Ab3" + text), "`"),
    "private": joined("<private>", st.text(ALNUM + " \n", min_size=12).map(lambda text: "zq7" + text), "</private>"),
    "key path": joined("/home/dev/.ssh/", token(ALNUM + "_", 8)),
}  # fmt: skip


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# What stands around a secret: any text, ending and beginning as text between words does.
AROUND = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=60)
BEFORE = st.tuples(AROUND, st.sampled_from([" ", "\n", "\t", " (", "; ", ', "', "\n\n- "])).map("".join)
AFTER = st.tuples(st.sampled_from([" ", "\n", "\r\n", "\n\n"]), AROUND).map("".join)


@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_no_secret_survives(kind: str) -> None:
    """A secret of every kind is gone, whatever text stands around it, and redacting again changes nothing."""

    @settings(max_examples=40, deadline=None)
    @given(BEFORE, SECRETS[kind], AFTER)
    def check(before: str, made: tuple[str, str], after: str) -> None:
        text, secret = made
        assume(secret not in before + after)
        clean, counts = redact.redact(f"{before}{text}{after}")
        assert secret not in clean, clean
        assert sum(counts.values()) >= 1
        assert redact.redact(clean)[0] == clean

    check()


@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_no_half_survives_a_cut(kind: str) -> None:
    """Cuts come after redaction: no eight characters of a secret are in what is kept, wherever the cut goes through."""

    @settings(max_examples=40, deadline=None)
    @given(SECRETS[kind], st.integers(0, 130))
    def check(made: tuple[str, str], shift: int) -> None:
        text, secret = made
        output = "line one\n" + "w " * shift + text + "\n" + "the rest of it " * 40
        seen = events.adapt("x", "PostToolUse", {"tool_name": "Bash", "tool_output": output, "session_id": "s"}, 1)
        assert isinstance(seen, events.Event)
        kept = events.both_ends(output, 150, 100, lambda part: redact.redact(part)[0])
        for start in range(max(1, len(secret) - 7)):
            piece = secret[start : start + 8]
            if len(set(piece)) > 4 and piece not in text.replace(secret, ""):
                for part in (*kept, seen.output_head, seen.output_tail):
                    assert piece not in part

    check()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([
    "password", "token", "=", ": ", '"', "'", "secret", "[redacted:", "]", " ", "\n", "Bearer ", "Basic ", "https://", "@",
    ":", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "<private>", "</private>", "sk-", "ghp_", "x9Y8z7W6v5",
    "curl -u ", "--password ", "AAAAbbbb1111CCCC2222", "\\n", "\\", "é", "/.ssh/", "login a password ",
]), max_size=24).map("".join))  # fmt: skip
def test_idempotent_on_debris(text: str) -> None:
    """Redacting what was redacted changes nothing, whatever pieces of secrets and markers a text is made of."""
    once, _ = redact.redact(text)
    assert redact.redact(once) == (once, {})


def _tried(text: str) -> tuple[str, dict[str, int]]:
    """``text`` redacted with every rule of a maker's tried, whatever the look at it said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redact, "_has_run", lambda *_: True)
        patch.setattr(redact, "_makers", lambda *_: set(secret_kinds.MAKER_RULES))
        return redact.redact(text)


MARKS = (
    "hf_ r8_ sk- sntrys_ sntrus_ sk_live_ rk_test_ ghp_ gho_ github_pat_ glpat- glagent- xoxb- xapp- dop_v1_ hvs. ya29."
    " pscale_pw_ pscale_tkn_ tskey-auth- GOCSPX- AKIA EAA eyJa. 1// abc7Q~ dapi api_org_ rubygems_ sb_secret_ npm_ pypi-"
    " figd_ SG. dp.pt. key- 12345678:"
).split()
RUNS = ["AAa1b2c3d4e5", "ABCDEFGH12345678", "0123456789abcdef" * 3, "aB3-_x9Y8z7W6v5u4t3s2r1q0", "a.b", ""]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(*map(st.sampled_from, ([*"_-.:~/@ \n", "é", ""], MARKS, RUNS))).map("".join), max_size=3).map(
        "".join
    )
)
def test_the_look_misses_no_token(text: str) -> None:
    """What decides which rules run leaves none out that would find something."""
    assert redact.redact(text) == _tried(text)


@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_clean_is_what_nothing_is_taken_from(kind: str) -> None:
    """A text is called clean only when no line of it holds a secret."""

    @settings(max_examples=20, deadline=None)
    @given(AROUND, SECRETS[kind], AROUND)
    def check(before: str, made: tuple[str, str], after: str) -> None:
        whole = "\n".join((before, made[0], after))
        assert not redact.is_clean(whole)
        if redact.is_clean(before):
            assert redact.redact(before) == (before, {})
            assert redact.drop_blobs(before) == (before, 0)

    check()


KEY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + "aB3d" * 3] * 20)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        (f"a\n-----BEGIN RSA PRIVATE KEY-----\n{KEY}\nqQ==\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted:pem]\nb"),
        (f"a\n-----BEGIN PRIVATE KEY-----\n{KEY}", "a\n[redacted:pem]"),
        (f"{KEY}\nqQ==\n-----END OPENSSH PRIVATE KEY-----\nb", "[redacted:pem]\nb"),
        (
            "-----BEGIN PRIVATE KEY-----\\n" + KEY.replace("\n", "\\n") + "\\n-----END PRIVATE KEY-----",
            "[redacted:pem]",
        ),
        ("grep '-----BEGIN PRIVATE KEY-----' and more", "grep '[redacted:pem]' and more"),
        (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{KEY}\n-----END PGP PRIVATE KEY BLOCK-----", "[redacted:pem]"),
    ],
)
def test_pem(text: str, stays: str) -> None:
    """A private key goes whole, also when its first or its last line was cut off, and takes nothing else with it."""
    assert redact.redact(text)[0] == stays


def test_pem_middle_is_a_blob() -> None:
    """A piece out of the middle of a key has no name left, and goes as a base64 blob."""
    text, count = redact.drop_blobs(f"before\n{KEY}\n\nafter")
    assert count == 1
    assert "MIIEv" not in text
    assert text.startswith("before\n")
    assert text.endswith("after")


STAY = [
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 fixes the token parser",
    "9fceb02", "session 11111111-2222-4333-8444-555555555501", "ASIAPACIFICREGION", "pit-stop-strategy",
    "Idempotency-Key: 8e03978e-40d5-43e8-bc93-6894a57f9324", "Continuation-Token: page2page2page2", "max_tokens: 4096",
    '{"input_tokens": 1024, "output_tokens": 99}', "token_count = 512", "password: str", "password: required",
    "token = os.environ['TOKEN']", "api_key = settings.api_key", "password=$DB_PASSWORD", "password=${DB_PASSWORD}",
    "the token was rejected by the server", "secret sauce", "keyboard: qwerty", "primary_key=True", "sort_key: created_at",
    "docker run -u 1000:1000 image", "docker run --user 1000:1000 image",
    "http://localhost:8080/@scope/pkg", "sk-circle-fade-dot-wrapper",
    "git clone git@github.com:owner/repo.git", "basic understanding of things", "the bearer of bad news",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "task-management-system-v2-2024",
    "npm_config_registry", "npm_lifecycle_event", "pypi-publish", "hf_hub_download", "SG.x", "tokenizer.json",
    "if token == expected_token:", "def get_token(self) -> str:", "credentials: include", "cookie: chocolate chips",
    "--max-tokens 4000 --tokenizer path/to/tokenizer", "--no-password", "author: me", "2026-11-30T09:00:00.000Z",
    "src/auth/token_service.py:120: error", "secret_name: db-creds", "password_field: user_pw", "authorization: required",
    "def batches(size: int, tokens: int = BATCH_TOKENS) -> list[int]:", "added_tokens: list[_Special]", "token = token[:-1]",
    "TOKENS_PER_WORD = 1.3", "tokens: 91/101, 88/101", "authorization = authorization.split(':')",
    "max_tokens=256,  # of all-MiniLM-L6-v2", "secret = text[where[0] : where[1]]",
    "class TokenBucket(object): pass", "key: value", "api.tokens.list()",
    "1//2 == 0", "<privateKey>", "test_password_reset PASSED",
]  # fmt: skip


@pytest.mark.parametrize("text", STAY)
def test_false_positives_stay(text: str) -> None:
    """What only looks like a secret is left as it is."""
    assert redact.redact(text) == (text, {})


def test_images_are_blobs() -> None:
    """The base64 of an image is dropped as a blob, not called a secret."""
    text = f"see ![x](data:image/png;base64,{_base64('0123456789abcdefgh' * 40)}) there"
    clean, blobs = redact.drop_blobs(text)
    assert blobs == 1
    assert redact.redact(clean) == (clean, {})
    assert clean.startswith("see ![x](data:image/png;base64,[blob: ")


def test_allow_and_extra() -> None:
    """An allowed string stays; a pattern of the user's goes under the kind ``custom``."""
    extra = redact.compile_extra([r"EMP-\d{6}"])
    assert redact.redact("EMP-123456 password=hunter22", extra, ["hunter22"]) == (
        "[redacted:custom] password=hunter22",
        {"custom": 1},
    )


@pytest.mark.parametrize(("pattern", "says"), [("(", "pattern 2 ('(') is not valid"), ("x*", "matches the empty text")])
def test_bad_pattern_is_named(pattern: str, says: str) -> None:
    """A pattern that is wrong, or would remove everything, is refused with its place in the list."""
    with pytest.raises(redact.BadPattern) as caught:
        redact.compile_extra(["ok", pattern])
    assert says in str(caught.value)


@pytest.mark.parametrize("unit", [
    "a", "password=", "secret ", "eyJa.", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "curl -u ", "AB1cd2EF",
    "token: ", "://a:", "<private>", "Authorization: Basic ", "x_key=", "mysql ", "--a-", '\\"', "A_KEY", "login a ", "/.ssh",
    "https://x:y@", "0123456789:", "bearer ", "cookie: a=", "Ab1+/", "sk-", "api_key", "password is ", "[redacted:",
])  # fmt: skip
def test_linear(unit: str) -> None:
    """Sixteen times the text takes about sixteen times as long: no pattern goes quadratic on repeated pieces."""
    small, large = unit * (8_000 // len(unit)), unit * (128_000 // len(unit))
    prefix = "private key token secret password auth cookie basic bearer curl @ :// mysql .ssh "

    def cost(text: str) -> float:
        start = time.process_time()
        redact.redact(prefix + text)
        redact.drop_blobs(text)
        return time.process_time() - start

    cost(small)
    assert cost(large) < 16 * 6 * max(cost(small), 0.004)


def test_runs_without_site() -> None:
    """The hook client can import it under ``-I -S`` with nothing but the standard library."""
    program = (
        "import sys; sys.path.append(sys.argv[1]); from memory import redact\n"
        "print(redact.redact('password=hunter22')[0], 'msgspec' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(ROOT)], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "password=[redacted:assignment] False\n"


def test_kinds_fit_their_marker() -> None:
    """No marker is longer than what a cut looks back for."""
    for name, (kind, _) in secret_kinds._MAKERS.items():
        assert len(f"[redacted:{kind}]") <= redact.MARKER_MAX, name
