"""What secrets look like: a rule for each kind."""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Sequence
from math import log2

from .rules import Rule, anchored, compiled, group, places, replace_spans, rule, whole

# --- tokens of known makers ----------------------------------------------------------------------------------------------

# Where a token may begin: not inside a word, but right behind an escape such as \n in JSON that was quoted once more.
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_DIGIT = r"(?=[A-Za-z_-]{0,80}[0-9])"
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"

_MAKERS: dict[str, tuple[str, str]] = {
    "openai": ("openai", _LEFT + r"s(?:k|ess)-" + _DIGIT + r"[A-Za-z0-9_-]{16,}"),
    "stripe": ("stripe", r"(?:[srp]k_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9+/=]{16,})"),
    "github": ("github", r"(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    "gitlab": ("gitlab", r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{16,}"),
    "npm": ("npm", r"npm_[A-Za-z0-9]{30,}"),
    "pypi": ("pypi", r"pypi-(?:Ag[A-Za-z0-9_-]{14,}|[A-Za-z0-9_-]{50,})"),
    "sendgrid": ("sendgrid", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    "huggingface": ("huggingface", r"(?:hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,})"),
    "aws": ("aws", _LEFT + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "google": (
        "google",
        r"(?:AIza[A-Za-z0-9_-]{30,}|" + _LEFT + r"1//[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_.-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
    ),
    "meta": ("meta", r"(?:(?<![A-Za-z0-9+/=_-])|(?<=\\[nrt]))EAA" + _DIGIT + r"[A-Za-z0-9]{20,}"),
    "telegram": ("telegram", r"(?<![0-9])[0-9]{8,10}:(?:AA[A-Za-z0-9_-]{30,}|[A-Za-z0-9_-]{34,35}(?![A-Za-z0-9_-]))"),
    "gohighlevel": ("gohighlevel", _LEFT + r"pit-" + _UUID),
    "slack": ("slack", r"(?:xox[abeoprs]-[A-Za-z0-9.-]{10,}|xapp-[A-Za-z0-9-]{10,})"),
    "webhook": (
        "webhook",
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/)(?P<s>[A-Za-z0-9/_-]{16,})",
    ),
    "jwt": ("jwt", r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{11,}\.(?=[A-Za-z0-9_-]{8})"),
    "azure": (
        "azure",
        r"(?i:(?:AccountKey|SharedAccessKey|SharedSecret)\s{0,2}=\s{0,2}|[?&;]sig=)(?P<s>[A-Za-z0-9%+/=_-]{20,})",
    ),
    "entra": ("azure", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,}"),
    "provider": (
        "provider",
        (r"(?:gsk_[A-Za-z0-9]{20,}|do[opr]_v1_[a-f0-9]{40,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|r8_[A-Za-z0-9]{30,}"
        r"|lin_api_[A-Za-z0-9]{20,}|(?:ntn|secret)_[A-Za-z0-9]{40,}|dckr_[po]at_[A-Za-z0-9_-]{20,}|figd_[A-Za-z0-9_-]{20,}"
        r"|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{20,}|sntr[yu]s_[A-Za-z0-9+/=_-]{20,}|sb[p]_[a-f0-9]{40}"
        r"|sb_secret_[A-Za-z0-9_-]{20,}|rubygems_[a-f0-9]{40,}|ATATT3[A-Za-z0-9_=-]{20,}|(?:xai|pplx)-[A-Za-z0-9]{20,}"
        r"|tskey-[a-z]{2,10}-[A-Za-z0-9-]{16,}|PMAK-[a-f0-9-]{40,}|NRAK-[A-Z0-9]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{40,}"
        r"|hv[sbr]\.[A-Za-z0-9_-]{20,}|(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{20,}"
        r"|dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9]{20,}|(?<![a-z0-9])dapi[a-f0-9]{32}|(?<![a-z0-9])key-[a-f0-9]{32})"),
    ),
}  # fmt: skip


def _jwt(match: re.Match[str]) -> tuple[int, int] | None:
    """A token in a run that ends with a dot. Looked for run by run: tried at every "eyJ", a run of them costs its square."""
    start = match.string.find("eyJ", match.start(), match.end())
    if start < 0 or match.end() - start < 12:
        return None
    rest = compiled(r"[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)?").match(match.string, match.end())
    return start, rest.end() if rest else match.end()


MAKER_RULES = {
    name: rule(kind, source, _jwt if name == "jwt" else group if "(?P<s>" in source else whole)
    for name, (kind, source) in _MAKERS.items()
}

# --- tokens by what stands before them --------------------------------------------------------------------------------------

CORES = ("pass", "pwd", "secret", "token", "credential", "key", "connection")
_NAMES = r"pass(?:word|wd|phrase|code)s?|pwd|secrets?|tokens?|credentials?|keys?|connection[ _-]?strings?"
_KEY_OF = (
    r"(?i)(?:api|access|private|secret|signing|signature|encryption|auth|master|account|shared|subscription|license|service"
    r"|storage|session|security|client|admin|root|webhook|deploy|hmac|(?<![a-z])(?:sas|jwt|rsa|ssh|gpg|pgp|ssl|tls|aes))"
    r"[ _.-]?$"
)
"""What stands before "key" where the key is a secret."""
_SUFFIX = r"(?P<suffix>(?:[_-][A-Za-z0-9]{1,20}){0,3}|[A-Z0-9][A-Za-z0-9]{0,20})"
_VALUE = r"""(?:(?P<q>\\{0,4}["'`])(?P<quoted>(?:(?!(?P=q))(?:\\.|[^\r\n\\])){1,8192})|(?P<bare>[^\s"'`]{1,8192}))"""
_ASSIGN = (
    rf"(?P<name>(?i:{_NAMES})){_SUFFIX}(?:\\{{0,4}}[\"'`])?\]?[ \t]{{0,8}}"
    rf"(?P<sep>:[ \t]{{0,2}}[A-Za-z_][\w.]{{0,24}}(?:\[[\w. ,|]{{0,24}}\])?(?:[ ]\|[ ]\w{{1,12}})?[ \t]{{0,2}}=(?!=)"
    rf"|[ \t](?:string|String|str)[ \t]{{0,2}}:?=|:=|=>|={{1,3}}|:|>)[ \t]{{0,8}}{_VALUE}"
)
_POSITION_BEFORE = frozenset(
    "idempotency continuation page next prev previous cancellation sync design max min num total input output prompt"
    " completion cached reasoning cursor stop start end eos bos pad unk sep mask per public primary foreign".split()
)
"""``<word>_token`` or ``<Word>-Key`` that is a position, a count or no secret."""
_HARMLESS_SUFFIX = frozenset(
    "count counts name names id ids type types field fields path paths file files url uri endpoint len length limit size"
    " expiry expires expiration ttl budget usage policy hint label index at ref arn dir kind format pattern regex prefix"
    " suffix column required enabled manager store provider service reset form input required error errors".split()
)
_PLAIN_WORDS = frozenset(
    "none null nil true false undefined unset empty required optional missing invalid expired incorrect wrong str string"
    " strings bytes int integer bool boolean text varchar number object any unknown yes no not is was are the this that and"
    " for from with value values field fields param parameter type types name new old your my here example changeme hidden"
    " masked redacted removed default prompt input file path env environment variable auth basic bearer [redacted".split()
)
_REFERENCE = (
    r"(?:\$\{[A-Za-z_]|\$[A-Z_][A-Z0-9_]*[\"',;)}]*$|\$[a-z_]+[\"',;)}]*$|\$\("
    r"|%\w+%$|<[a-zA-Z][\w -]{0,40}>?$|\{\{|\*{3,}$|\.{3}$|x{4,}$|X{4,}$"
    r"|(?:os|process|env|self|this|config|settings|options|args|params|request|req|ctx|secrets|vars|import\.meta)[.\[][a-zA-Z'\"]"
    r"|(?:get\w{0,30}|require|input|await|lambda|Optional|Union|Field|SecretStr)[(\[])"
)


def _assigned(match: re.Match[str]) -> tuple[int, int] | None:
    """Which part of ``name = value`` is a secret: None when the name or the value says that it is none."""
    name, suffix, sep = match["name"].lower(), match["suffix"], match["sep"]
    group = "quoted" if match["q"] else "bare"
    value = match[group].strip().rstrip(",;:)}]>&")
    low = value.lower().rstrip(".:!?")
    if not value or low in _PLAIN_WORDS or low == name or compiled(_REFERENCE).match(value):
        return None
    text, at = match.string, match.start()
    if name[0] == "k" and not _before(_KEY_OF, text, at, 16):
        return None
    if sep == ">" and "<" not in text[max(0, at - 40) : at]:
        return None
    parts = [part.lower() for part in compiled(r"[A-Za-z][a-z]*|[A-Z]+").findall(suffix)]
    if parts and parts[-1] in _HARMLESS_SUFFIX and not _dense(value):
        return None
    passwords = name[0] == "p"
    if passwords:
        # "pass" words stand in prose too: unquoted after a colon they need three characters.
        return match.span(group) if match["q"] or sep != ":" or len(value) > 2 else None
    before = _before(r"[A-Za-z]{2,14}(?=[_ .-]?$)", text, at, 16)
    if before and before.group().lower() in _POSITION_BEFORE and not name.startswith(("sec", "cred")):
        return None
    if not match["q"]:
        if "_" in value and value.replace("_", "").isalpha() and any(core in low for core in CORES):
            return None  # the name of another variable
        if compiled(r"[a-zA-Z_]\w*(?:\.\w+)*[\[(]").match(value) and not _dense(value):
            return None  # an expression
        if value[0] in "[{(" or (len(value) < 9 and compiled(r"[0-9.,/]+$").match(value)):
            return None
        prose = sep == ":" and text[match.end("sep") : match.end("sep") + 1] in " \t"
        if value.isalpha() and (len(value) < 8 or (prose and value.islower() and len(value) < 20)):
            return None
        if "(" in value and not _dense(value):
            return None
    elif name[0] in "t" and (" " in value or value.isdigit()) and not _dense(value):
        return None
    return match.span(group)


def _before(source: str, text: str, at: int, size: int) -> re.Match[str] | None:
    """Match of ``source`` in the ``size`` characters before ``at``; its $ stands for ``at``."""
    return compiled(source).search(text[max(0, at - size) : at])


def _dense(value: str) -> bool:
    """Whether ``value`` looks random: 16 characters or more of mixed classes with at least 3 bits each."""
    if len(value) < 16 or not any(char.isdigit() for char in value) or not any(char.isalpha() for char in value):
        return False
    size = min(len(value), 256)
    shares = [value.count(char, 0, size) / size for char in set(value[:size])]
    return -sum(share * log2(share) for share in shares) >= 3.0


_NEAR_CONTEXT = r"(?i:secret|token|passw(?:or)?d|passphrase|credential|key)[a-z]{0,3}\b"


def _near(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
    """Random-looking words within 60 characters after a secret's name on the same line ("the token is …")."""
    spans: list[tuple[int, int]] = []
    candidate = compiled(r"(?<![A-Za-z0-9+/_=.~-])[A-Za-z0-9+/_=.~!@#$%^&*-]{6,512}")
    for at in places(text, CORES):
        context = compiled(_NEAR_CONTEXT).match(text, at)
        if not context or (context.group()[0] in "kK" and not _before(_KEY_OF, text, at, 16)):
            continue
        end = text.find("\n", context.end(), context.end() + 60)
        end = context.end() + 60 if end < 0 else end
        for word in candidate.finditer(text, context.end(), end + 512):
            gap = text[context.end() : word.start()]
            if word.start() >= end or "\n" in gap:
                break
            value = word.group().rstrip(".,;:!?")
            if value in allow or (spans and word.start() < spans[-1][1]) or value.startswith("redacted:"):
                continue
            told = compiled(r"(?i)[\s\"'`(]{0,3}(?:is|was|=|to|be|:)?[\s\"'`(:]{1,3}$").match(gap)
            if _random(value, told=bool(told), password="pass" in context.group().lower()):
                spans.append((word.start(), word.start() + len(value)))
    return replace_spans(text, spans, "entropy", counts)


def _random(value: str, *, told: bool, password: bool) -> bool:
    digits = sum(char.isdigit() for char in value)
    if compiled(rf"(?:[0-9a-f]{{7,64}}|{_UUID}|0x[0-9a-fA-F]+)$").match(value):
        return told and len(value) >= 32  # elsewhere it is a commit, a digest, an id
    if told and password:
        return bool(digits) and digits < len(value) and len(value) >= 6 and "/" not in value
    words = compiled(r"[-_./+=~]").split(value)
    if all(compiled(r"[A-Za-z]{0,24}[0-9]{0,4}$|[0-9]+$").match(word) for word in words):
        return False  # a name, a path, a version: every part is one word or number
    upper, lower = any(map(str.isupper, value)), any(map(str.islower, value))
    return len(value) >= 16 and _dense(value) and (told or (upper and lower and digits > 1 and "/" not in value[:2]))


def _basic(match: re.Match[str]) -> tuple[int, int] | None:
    """``Basic <base64>`` anywhere: only when it decodes to something with a colon."""
    value = match["s"]
    try:
        plain = a2b_base64(value + "=" * (-len(value) % 4))
    except (Base64Error, ValueError):
        return None
    return match.span("s") if b":" in plain else None


def _user(match: re.Match[str]) -> tuple[int, int] | None:
    """``-u name:password`` of curl and its like; ``docker run -u 1000:1000`` is none."""
    if _before(r"[\w-]$", match.string, match.start(), 1):
        return None
    before = match.string[max(0, match.start() - 2000) : match.start()]
    if not compiled(r"(?<![\w-])(?:curl|wget|http|https|smbclient)(?![\w-])").search(before):
        return None
    return None if compiled(r"[0-9]*:[0-9]*$").match(match["s"]) else match.span("s")


def _literal(match: re.Match[str]) -> tuple[int, int] | None:
    """The group, unless it only points at a secret."""
    return None if compiled(_REFERENCE).match(match["s"]) else match.span("s")


def _flag(match: re.Match[str]) -> tuple[int, int] | None:
    group = "quoted" if match["q"] else "bare"
    value = match[group]
    word = r"(?:api|access|private|auth|secret|account|master)-?" if match.group()[0] in "kK" else ""
    if not _before(r"(?<![\w-])--?(?:[a-z0-9]{1,16}-){0,3}" + word + "$", match.string, match.start(), 64):
        return None
    if compiled(_REFERENCE).match(value) or (not match["q"] and value[0] in "-|;&>)") or value.lower() in _PLAIN_WORDS:
        return None
    return match.span(group)


def _header(match: re.Match[str]) -> tuple[int, int] | None:
    value = match["s"]
    if not match["scheme"] and (len(value) < 8 or value.rstrip(".,;:").lower() in _PLAIN_WORDS):
        return None
    return None if compiled(r"(?i)authorization[.\[(]|" + _REFERENCE).match(value) else match.span("s")


def _url(match: re.Match[str]) -> tuple[int, int] | None:
    user, password = match["user"], match["password"]
    if password is None:  # https://TOKEN@host
        return match.span("user") if len(user) >= 16 and _dense(user) else None
    return (
        None
        if compiled(r"\$\{\w+\}$|\$[A-Z_]+$|[0-9]{1,5}/").match(password)
        else (match.start("user"), match.end("password"))
    )


def _db_url(match: re.Match[str]) -> tuple[int, int] | None:
    """Passwords in the URLs of databases may hold a slash; elsewhere a slash ends the host."""
    schemes = (
        r"(?i)(?:postgres|postgresql|mysql|mariadb|mongodb|rediss?|amqps?|mssql|clickhouse|s?ftp|ldaps?)[+\w]{0,16}$"
    )
    return _url(match) if _before(schemes, match.string, match.start(), 40) else None


def _env_key(match: re.Match[str]) -> tuple[int, int] | None:
    """``SOMETHING_KEY=value`` in the environment, whatever vendor."""
    harmless = r"(?<![A-Z])(?:PUBLIC|PRIMARY|FOREIGN|CACHE|SORT|PARTITION|IDEMPOTENCY|OBJECT)$"
    text, at, value = match.string, match.start(), match["s"]
    if not _before(r"[A-Z][A-Z0-9]$", text, at, 2) or _before(harmless, text, at, 16):
        return None
    return None if value.isalpha() or compiled(_REFERENCE).match(value) else match.span("s")


_END = r"@(?=[\w\[.-])"
_USER = r"://(?P<user>[^\s/:@'\"<>`\[\]]{0,256})"
URL = rule("url", _USER + r"(?::(?P<password>[^\s/'\"<>`]{1,512}))?" + _END, _url)
DB_URL = rule("url", _USER + r":(?P<password>[^\s'\"<>`]{1,512})" + _END, _db_url)
HEADERS = anchored(
    "header",
    ("authorization",),
    r"(?i)authorization\\{0,4}[\"'`]?[ \t]{0,4}[:=,][ \t]{0,4}\\{0,4}[\"'`]?"
    r"(?P<scheme>(?:basic|bearer|token|digest|negotiate|ntlm|apikey|aws4-hmac-sha256|hawk|signature|dpop)[ \t]{1,4})?"
    r"(?P<s>[^\s\"'`]{1,8192}(?:(?<=,)[ \t]?[^\s\"'`]{1,512}){0,16})",
    _header,
)
BEARER = anchored("bearer", ("bearer",), r"(?i)bearer[ \t:]{1,4}(?P<s>[A-Za-z0-9._~+/=-]{16,})")
BASIC = anchored("basic", ("basic",), r"(?i)basic[ \t]{1,4}(?P<s>[A-Za-z0-9+/]{6,4096}={0,2})", _basic)
COOKIE = anchored(
    "header", ("cookie",), r"(?i)cookie\\?[\"'`]?:[ \t]{0,4}\\?[\"'`]?(?P<s>[\w.-]{1,64}=[^\r\n\"'`]{1,8192})"
)
ASSIGNMENT = anchored("assignment", CORES, _ASSIGN, _assigned)
ENV_KEY = rule(
    "assignment", r"_KEY(?:_[A-Z0-9]{1,12})?[\"']?[ ]{0,2}[=:][ ]{0,2}[\"']?(?P<s>[^\s\"'`]{8,4096})", _env_key
)
FLAGS = anchored(
    "flag",
    CORES,
    r"(?i:pass(?:word|wd|phrase|code)?|token|secret|key|credentials?|pwd)(?:=|[ \t]{1,4})" + _VALUE,
    _flag,
)
USERS = rule(
    "curl",
    r"-(?:u|U|-user|-proxy-user|a|-auth)[ =]{0,2}[\"']?(?P<s>[^\s:\"'-][^\s:\"']{0,256}[:%][^\s\"']{1,512})",
    _user,
)
SHORT_FLAGS = anchored(
    "flag",
    ("mysql", "mariadb", "sshpass", "redis-cli", "docker login", "podman login"),
    r"(?i)(?:(?:mysql|mariadb)(?:dump|admin)?\b[^\n|;&]{0,200}?[ ]-p(?=[^\s])|sshpass[ ]{1,2}-p[ ]{0,2}"
    r"|redis-cli\b[^\n|;&]{0,200}?[ ]-a[ ]{1,2}|(?:docker|podman)[ ]login\b[^\n|;&]{0,200}?[ ]-p[ ]{1,2})"
    r"[\"']?(?P<s>[^\s\"']{1,512})",
    _literal,
)
NETRC = anchored(
    "assignment", ("login",), r"(?i)login[ \t\r\n]{1,4}\S{1,256}[ \t\r\n]{1,4}password[ \t\r\n]{1,4}(?P<s>\S{1,512})"
)
TOLD = anchored(
    "assignment",
    ("pass",),
    r"(?i)pass(?:word|phrase|code)[ ](?:is|was|=|(?:is[ ])?set[ ]to|changed[ ]to)[ :]{1,2}[\"'`]?"
    r"(?P<s>(?=[^\s\"'`]{0,64}[0-9!@#$%^&*])[^\s\"'`]{6,256})",
)
NEAR: Rule = _near
KEY_PATHS = rule(
    "path",
    r"(?:(?<![\w.-])\.(?:ssh|aws|kube|gnupg|azure)[/\\]{1,4}|(?<![\w.-])\.config[/\\]{1,4}gcloud[/\\]{1,4}"
    r"|(?<![\w.-])(?=id_(?:rsa|dsa|ecdsa|ed25519)(?![\w.])))(?P<s>[^\s\"'`<>|;:,()\[\]]{1,512})",
    group,
)
