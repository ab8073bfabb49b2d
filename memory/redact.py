"""
Secrets out of text: every kind of credential becomes ``[redacted:kind]`` before anything is cut or rests on a disk.

Pure, and importable as a plain file under ``python -I -S``, as the hook client does. Patterns are compiled when a text
first calls for them: looking at a clean text costs a few substring searches. Every pattern is linear: no unbounded run
may start at each position of a text.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from math import log2

MARKER = b"[redacted:"
MARKER_MAX = 32
"""Longer than any marker."""
MIN_BLOB = 256
"""A base64 run of this length is a file, not a key."""


class BadPattern(ValueError):
    """Raised when a pattern of the user's is not a regular expression; the text names the pattern and the place."""


def redact(text: str, extra: Sequence[re.Pattern[str]] = (), allow: Sequence[str] = ()) -> tuple[str, dict[str, int]]:
    """
    ``text`` with secrets replaced, and how many of each kind. Idempotent.

    ``extra`` are the user's own patterns (``compile_extra``), kind ``custom``; ``allow`` are exact strings that stay. What
    stands between ``<private>`` and ``</private>`` goes, also when one of the two is missing.
    """
    rules = _suspects(text)
    if not rules and not extra:
        return text, {}
    counts: dict[str, int] = {}
    # What one rule leaves may be what another looks for, so go on until nothing changes.
    for _ in range(8):
        before = text
        for pattern in extra:
            text = _apply(text, "custom", pattern, _all, allow, counts)
        for rule in rules:
            text = rule(text, allow, counts)
        if text == before:
            break
        rules = _suspects(text)
    return text, counts


def compile_extra(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """The user's patterns, compiled. Raises BadPattern naming the first that is wrong or matches the empty text."""
    compiled = []
    for number, pattern in enumerate(patterns, 1):
        try:
            one = re.compile(pattern)
        except re.error as error:
            where = "" if error.pos is None else f" at character {error.pos + 1}"
            raise BadPattern(f"redaction pattern {number} ({pattern!r}) is not valid: {error.msg}{where}") from None
        if one.search(""):
            raise BadPattern(
                f"redaction pattern {number} ({pattern!r}) matches the empty text and would remove everything"
            )
        compiled.append(one)
    return tuple(compiled)


def drop_blobs(text: str) -> tuple[str, int]:
    """``text`` with base64 files (images in tool output) replaced by ``[blob: N chars]``, and how many there were."""
    if len(text) < MIN_BLOB:
        return text, 0
    count = 0

    def name(match: re.Match[str]) -> str:
        nonlocal count
        run = match.group()
        if len(set(run[:512])) < 20:  # a ruler of zeros is not a file
            return run
        count += 1
        return f"[blob: {len(run)} chars]"

    return _compile(_BLOB).sub(name, text), count


_BLOB = r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{256,}|(?:[A-Za-z0-9+/]{60,76}(?:\r?\n|\\n)){4,}[A-Za-z0-9+/]*)={0,2}"

Rule = Callable[[str, Sequence[str], "dict[str, int]"], str]
Span = Callable[["re.Match[str]"], "tuple[int, int] | None"]
_compiled: dict[str, re.Pattern[str]] = {}


def _compile(source: str) -> re.Pattern[str]:
    found = _compiled.get(source)
    if found is None:
        found = _compiled[source] = re.compile(source)
    return found


def _all(match: re.Match[str]) -> tuple[int, int]:
    return match.span()


def _group(match: re.Match[str]) -> tuple[int, int]:
    return match.span("s")


def _apply(
    text: str, kind: str, pattern: re.Pattern[str], span: Span, allow: Sequence[str], counts: dict[str, int]
) -> str:
    """Replace what ``span`` says of each match; None leaves it."""
    parts: list[str] = []
    done = 0
    for match in pattern.finditer(text):
        where = span(match)
        if where is None or where[0] < done or where[0] == where[1]:
            continue
        secret = text[where[0] : where[1]]
        if secret in allow or (secret.startswith("[redacted:") and secret.find("]") == len(secret) - 1):
            continue
        parts += (text[done : where[0]], f"[redacted:{kind}]")
        done = where[1]
        counts[kind] = counts.get(kind, 0) + 1
    return "".join((*parts, text[done:])) if parts else text


def _rule(kind: str, source: str, span: Span = _all) -> Rule:
    return lambda text, allow, counts: _apply(text, kind, _compile(source), span, allow, counts)


# --- blocks: state machines over their delimiters ------------------------------------------------------------------------


def _replace(text: str, spans: list[tuple[int, int]], kind: str, counts: dict[str, int]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += (text[done:start], f"[redacted:{kind}]")
        done = end
        counts[kind] = counts.get(kind, 0) + 1
    return "".join((*parts, text[done:])) if parts else text


def _private_tags(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
    spans: list[tuple[int, int]] = []
    opened = -1
    for tag in _compile(r"(?i)<(/?)private>").finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        elif opened >= 0 or not spans:
            spans.append((max(opened, 0), tag.end()))  # without an opening tag the text was cut: all before it goes
            opened = -1
    if opened >= 0:
        spans.append((opened, len(text)))
    return _replace(text, spans, "private", counts)


def _pem(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
    spans: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    done = 0
    for line in _compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text):
        if line[1] == "BEGIN":
            if opened:
                spans.append((opened.start(), _key_lines(text, opened.end(), line.start())))
            opened = line
        else:
            spans.append((opened.start() if opened else _key_lines_before(text, line.start(), done), line.end()))
            done, opened = line.end(), None
    if opened:
        spans.append((opened.start(), _key_lines(text, opened.end(), len(text))))
    return _replace(text, spans, "pem", counts)


def _key_lines(text: str, at: int, limit: int) -> int:
    """Where the key that begins at ``at`` ends when its last line was cut off: after the last base64 line, or header."""
    line = _compile(r"(?:\s|\\[nr])*(?:[A-Za-z-]{4,20}: [^\n\\]{1,200}|\[blob: \d+ chars\]|[A-Za-z0-9+/=]+)")
    while True:
        found = line.match(text, at, limit)
        if not found:
            return at
        size = len(found.group().strip())
        if size < 16 and found.end() < limit and text[found.end() : found.end() + 1] not in "\r\n\\":
            return at
        at = found.end()


def _key_lines_before(text: str, at: int, limit: int) -> int:
    """Where a key begins whose first line was cut off, when its last line begins at ``at``."""
    base64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    first = True
    while at > limit:
        run = at
        while run > limit and text[run - 1] in " \t\r\n\\":
            run -= 1
        start = run
        while start > limit and text[start - 1] in base64:
            start -= 1
        if start == run or (run - start < 16 and not first and start > limit):
            return at
        at, first = start, False
    return at


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
    "jwt": ("jwt", r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    "azure": (
        "azure",
        r"(?i:(?:AccountKey|SharedAccessKey|SharedSecret)\s{0,2}=\s{0,2}|[?&;]sig=)(?P<s>[A-Za-z0-9%+/=_-]{20,})",
    ),
    "entra": ("azure", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,}"),
    "provider": (
        "provider",
        r"(?:gsk_[A-Za-z0-9]{20,}|do[opr]_v1_[a-f0-9]{40,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|r8_[A-Za-z0-9]{30,}"
        r"|lin_api_[A-Za-z0-9]{20,}|(?:ntn|secret)_[A-Za-z0-9]{40,}|dckr_[po]at_[A-Za-z0-9_-]{20,}|figd_[A-Za-z0-9_-]{20,}"
        r"|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{20,}|sntr[yu]s_[A-Za-z0-9+/=_-]{20,}|sb[p]_[a-f0-9]{40}"
        r"|sb_secret_[A-Za-z0-9_-]{20,}|rubygems_[a-f0-9]{40,}|ATATT3[A-Za-z0-9_=-]{20,}|(?:xai|pplx)-[A-Za-z0-9]{20,}"
        r"|tskey-[a-z]{2,10}-[A-Za-z0-9-]{16,}|PMAK-[a-f0-9-]{40,}|NRAK-[A-Z0-9]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{40,}"
        r"|hv[sbr]\.[A-Za-z0-9_-]{20,}|(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{20,}"
        r"|dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9]{20,}|(?<![a-z0-9])dapi[a-f0-9]{32}|(?<![a-z0-9])key-[a-f0-9]{32})",
    ),
}  # fmt: skip
_MAKER_RULES = {
    name: _rule(kind, source, _group if "(?P<s>" in source else _all) for name, (kind, source) in _MAKERS.items()
}

# --- tokens by what stands before them --------------------------------------------------------------------------------------

_NAMES = (
    r"pass(?:word|wd|phrase|code)s?|pwd|secrets?|tokens?|credentials?"
    r"|(?:api|access|private|secret|signing|signature|encryption|auth|master|account|shared|subscription|license|service"
    r"|storage|session|security|client|admin|root|webhook|deploy|sas|hmac|jwt|rsa|ssh|gpg|pgp|ssl|tls|aes|des)"
    r"[ _.-]?keys?|connection[ _-]?strings?"
)
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
    r"(?:\$\{?\w|\$\(|%\w+%$|<[a-zA-Z][\w -]{0,40}>?$|\{\{|\*{3,}$|\.{3}$|x{4,}$|X{4,}$"
    r"|(?:os|process|env|self|this|config|settings|options|args|params|request|req|ctx|secrets|vars|import\.meta)[.\[][a-zA-Z'\"]"
    r"|(?:get\w{0,30}|require|input|await|lambda|Optional|Union|Field|SecretStr)[(\[])"
)


def _assigned(match: re.Match[str]) -> tuple[int, int] | None:
    """Which part of ``name = value`` is a secret: None when the name or the value says that it is none."""
    name, suffix, sep = match["name"].lower(), match["suffix"], match["sep"]
    group = "quoted" if match["q"] else "bare"
    value = match[group].strip().rstrip(",;)}]>&")
    low = value.lower().rstrip(".:!?")
    if not value or low in _PLAIN_WORDS or low == name or _compile(_REFERENCE).match(value):
        return None
    text, at = match.string, match.start()
    if sep == ">" and "<" not in text[max(0, at - 40) : at]:
        return None
    parts = [part.lower() for part in _compile(r"[A-Za-z][a-z]*|[A-Z]+").findall(suffix)]
    if parts and parts[-1] in _HARMLESS_SUFFIX and not _dense(value):
        return None
    passwords = name.startswith("p") and not name.startswith("priv")
    if passwords:
        # "pass" words stand in prose too: unquoted after a colon they need three characters.
        return match.span(group) if match["q"] or sep != ":" or len(value) > 2 else None
    before = _compile(r"[A-Za-z]{2,14}(?=[_ .-]?$)").search(text, max(0, at - 16), at)
    if before and before.group().lower() in _POSITION_BEFORE and not name.startswith(("sec", "cred")):
        return None
    if not match["q"]:
        if value[0] in "[{(" or (value.isdigit() and len(value) < 9):
            return None
        prose = sep == ":" and text[match.end("sep") : match.end("sep") + 1] in " \t"
        if value.isalpha() and (len(value) < 8 or (prose and value.islower() and len(value) < 20)):
            return None
        if "(" in value and not _dense(value):
            return None
    elif name[0] in "t" and (" " in value or value.isdigit()) and not _dense(value):
        return None
    return match.span(group)


def _dense(value: str) -> bool:
    """Whether ``value`` looks random: 16 characters or more of mixed classes with at least 3 bits each."""
    if len(value) < 16 or not any(char.isdigit() for char in value) or not any(char.isalpha() for char in value):
        return False
    size = min(len(value), 256)
    shares = [value.count(char, 0, size) / size for char in set(value[:size])]
    return -sum(share * log2(share) for share in shares) >= 3.0


_NEAR_CONTEXT = (
    r"(?i:secret|token|passw(?:or)?d|passphrase|api[ _-]?key|credential|private[ _-]?key|access[ _-]?key)[a-z]{0,3}\b"
)


def _near(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
    """Random-looking words within 60 characters after a secret's name on the same line ("the token is …")."""
    spans: list[tuple[int, int]] = []
    candidate = _compile(r"(?<![A-Za-z0-9+/_=.~-])[A-Za-z0-9+/_=.~!@#$%^&*-]{6,512}")
    for context in _compile(_NEAR_CONTEXT).finditer(text):
        end = text.find("\n", context.end(), context.end() + 60)
        end = context.end() + 60 if end < 0 else end
        for word in candidate.finditer(text, context.end(), end + 512):
            gap = text[context.end() : word.start()]
            if word.start() >= end or "\n" in gap:
                break
            value = word.group().rstrip(".,;:!?")
            if value in allow or (spans and word.start() < spans[-1][1]) or value.startswith("redacted:"):
                continue
            told = _compile(r"(?i)[\s\"'`(]{0,3}(?:is|was|=|to|be|:)?[\s\"'`(:]{1,3}$").match(gap)
            if _random(value, told=bool(told), password="pass" in context.group().lower()):
                spans.append((word.start(), word.start() + len(value)))
    return _replace(text, spans, "entropy", counts)


def _random(value: str, *, told: bool, password: bool) -> bool:
    digits = sum(char.isdigit() for char in value)
    if _compile(rf"(?:[0-9a-f]{{7,64}}|{_UUID}|0x[0-9a-fA-F]+)$").match(value):
        return told and len(value) >= 32  # elsewhere it is a commit, a digest, an id
    if told and password:
        return bool(digits) and digits < len(value) and len(value) >= 6 and "/" not in value
    words = _compile(r"[-_./+=~]").split(value)
    if all(word.isalpha() or word.isdigit() or not word for word in words):
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
    before = match.string[max(0, match.start() - 2000) : match.start()]
    if not _compile(r"(?<![\w-])(?:curl|wget|http|https|xh|smbclient|git|lftp)(?![\w-])").search(before):
        return None
    return None if _compile(r"[0-9]*:[0-9]*$").match(match["s"]) else match.span("s")


def _short_flag(match: re.Match[str]) -> tuple[int, int] | None:
    """``mysql -pSECRET``, ``sshpass -p SECRET``, ``redis-cli -a SECRET``, ``docker login -p SECRET``."""
    return None if _compile(_REFERENCE).match(match["s"]) else match.span("s")


def _flag(match: re.Match[str]) -> tuple[int, int] | None:
    group = "quoted" if match["q"] else "bare"
    value = match[group]
    if _compile(_REFERENCE).match(value) or (not match["q"] and value[0] in "-|;&>)") or value.lower() in _PLAIN_WORDS:
        return None
    return match.span(group)


def _header(match: re.Match[str]) -> tuple[int, int] | None:
    value = match["s"]
    if not match["scheme"] and (len(value) < 8 or value.rstrip(".,;:").lower() in _PLAIN_WORDS):
        return None
    return None if _compile(_REFERENCE).match(value) else match.span("s")


def _url(match: re.Match[str]) -> tuple[int, int] | None:
    user, password = match["user"], match["password"]
    if password is None:  # https://TOKEN@host
        return match.span("user") if len(user) >= 16 and _dense(user) else None
    return (
        None if _compile(r"\$\{?\w+\}?$|[0-9]{1,5}/").match(password) else (match.start("user"), match.end("password"))
    )


_URL = _rule("url", r"://(?P<user>[^\s/:@'\"<>`\[\]]{0,256})(?::(?P<password>[^\s/'\"<>`]{1,512}))?@(?=[\w\[.-])", _url)
_DB_URL = _rule(
    "url",
    r"(?i:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql|clickhouse|ftp|ldap)[+\w]{0,16}://"
    r"(?P<user>[^\s/:@'\"<>`\[\]]{0,256}):(?P<password>[^\s'\"<>`]{1,512})@(?=[\w\[.-])",
    _url,
)
_HEADERS = _rule(
    "header",
    r"(?i)authorization\\{0,4}[\"'`]?[ \t]{0,4}[:=,][ \t]{0,4}\\{0,4}[\"'`]?"
    r"(?P<scheme>(?:basic|bearer|token|digest|negotiate|ntlm|apikey|aws4-hmac-sha256|hawk|signature|dpop)[ \t]{1,4})?"
    r"(?P<s>[^\s\"'`]{1,8192}(?:(?<=,)[ \t]?[^\s\"'`]{1,512}){0,16})",
    _header,
)
_BEARER = _rule("bearer", r"(?i)bearer[ \t:]{1,4}(?P<s>[A-Za-z0-9._~+/=-]{16,})", _group)
_BASIC = _rule("basic", r"(?i)\bbasic[ \t]{1,4}(?P<s>[A-Za-z0-9+/]{6,4096}={0,2})", _basic)
_COOKIE = _rule(
    "header", r"(?i)\b(?:set-)?cookie\\?[\"'`]?:[ \t]{0,4}\\?[\"'`]?(?P<s>[\w.-]{1,64}=[^\r\n\"'`]{1,8192})", _group
)
_ASSIGNMENT = _rule("assignment", _ASSIGN, _assigned)
_ENV_KEY = _rule(
    "assignment",
    r"(?<![A-Z])(?!(?:PUBLIC|PRIMARY|FOREIGN|CACHE|SORT|PARTITION|IDEMPOTENCY|OBJECT)_)[A-Z][A-Z0-9]{1,24}_KEY(?:_[A-Z0-9]{1,12})?"
    r"[\"']?[ ]{0,2}[=:][ ]{0,2}[\"']?(?P<s>[^\s\"'`]{8,4096})",
    lambda match: match.span("s") if not _compile(_REFERENCE).match(match["s"]) and not match["s"].isalpha() else None,
)
_FLAGS = _rule(
    "flag",
    r"(?<![\w-])--?(?:[a-z0-9]{1,16}-){0,3}(?i:pass(?:word|wd|phrase|code)?|token|secret|api-?key|access-?key|private-?key"
    r"|auth-?key|secret-?key|credentials?|pwd)(?:=|[ \t]{1,4})" + _VALUE,
    _flag,
)
_USERS = _rule(
    "curl",
    r"(?<![\w-])(?:-u|-U|--user|--proxy-user|-a|--auth)[ =]{0,2}[\"']?(?P<s>[^\s:\"'-][^\s:\"']{0,256}[:%][^\s\"']{1,512})",
    _user,
)
_SHORT_FLAGS = _rule(
    "flag",
    r"(?<![\w-])(?:(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;&]{0,200}?[ ]-p(?=[^\s])|sshpass[ ]{1,2}-p[ ]{0,2}"
    r"|redis-cli\b[^\n|;&]{0,200}?[ ]-a[ ]{1,2}|(?:docker|podman)[ ]login\b[^\n|;&]{0,200}?[ ]-p[ ]{1,2})[\"']?(?P<s>[^\s\"']{1,512})",
    _short_flag,
)
_NETRC = _rule(
    "assignment", r"(?i)\blogin[ \t\r\n]{1,4}\S{1,256}[ \t\r\n]{1,4}password[ \t\r\n]{1,4}(?P<s>\S{1,512})", _group
)
_TOLD = _rule(
    "assignment",
    r"(?i)pass(?:word|phrase|code)[ ](?:is|was|=|(?:is[ ])?set[ ]to|changed[ ]to)[ :]{1,2}[\"'`]?"
    r"(?P<s>(?=[^\s\"'`]{0,64}[0-9!@#$%^&*])[^\s\"'`]{6,256})",
    _group,
)
_NEAR: Rule = _near
_KEY_PATHS = _rule(
    "path",
    r"(?:(?<![\w.-])\.(?:ssh|aws|kube|gnupg|azure)[/\\]{1,4}|(?<![\w.-])\.config[/\\]{1,4}gcloud[/\\]{1,4}"
    r"|(?<![\w.-])(?=id_(?:rsa|dsa|ecdsa|ed25519)(?![\w.])))(?P<s>[^\s\"'`<>|;:,()\[\]]{1,512})",
    _group,
)


# --- the look at a text that decides which rules run -----------------------------------------------------------------------

# The last three characters before a "_" or "-" of a maker's token: one split finds them all.
_ENDS: dict[str, dict[str, str]] = {
    "_": {
        "ghp": "github", "gho": "github", "ghu": "github", "ghs": "github", "ghr": "github", "pat": "github provider",
        "npm": "npm", "ive": "stripe", "est": "stripe", "sec": "stripe", "org": "huggingface", "gsk": "provider",
        "_v1": "provider", "pca": "provider", "ppa": "provider", "pss": "provider", "api": "provider", "ntn": "provider",
        "ret": "provider", "igd": "provider", "tkn": "provider", "uth": "provider", "rys": "provider", "ryu": "provider",
        "sbp": "provider", "ems": "provider", "oat": "provider", "v1": "provider", "pw": "provider",
    },
    "-": {
        "pat": "gitlab", "oas": "gitlab", "ldt": "gitlab", "lrt": "gitlab", "cbt": "gitlab", "ptt": "gitlab", "lft": "gitlab",
        "imt": "gitlab", "ent": "gitlab", "oat": "gitlab", "fct": "gitlab", "ypi": "pypi", "pit": "gohighlevel",
        "oxa": "slack", "oxb": "slack", "oxe": "slack", "oxo": "slack", "oxp": "slack", "oxr": "slack", "oxs": "slack",
        "app": "slack", "spx": "google", "ess": "openai", "xai": "provider", "plx": "provider", "key": "provider",
        "mak": "provider", "rak": "provider",
    },
}  # fmt: skip
_SHORT_ENDS = {"_": (("hf_", "huggingface"), ("r8_", "provider")), "-": (("sk-", "openai"),)}


def _suspects(text: str) -> list[Rule]:
    """The rules that could find something, most specific first. This is what a clean text costs."""
    low = text.lower()
    makers: set[str] = set()
    for mark, table in _ENDS.items():
        if mark in low:
            for end in table.keys() & {part[-3:] for part in low.split(mark)}:
                makers.update(table[end].split())
            for literal, name in _SHORT_ENDS[mark]:
                if literal in low:
                    makers.add(name)
    if "IA" in text and ("AKIA" in text or "ASIA" in text or "ABIA" in text) or "ACCA" in text:
        makers.add("aws")
    for literal, name in (
        ("AIza", "google"),
        ("1//", "google"),
        ("EAA", "meta"),
        ("eyJ", "jwt"),
        ("ATATT", "provider"),
    ):
        if literal in text:
            makers.add(name)
    if "." in low:
        for part in low.split("."):
            end = part[-4:]
            if end == "ya29":
                makers.add("google")
            elif end[-2:] in ("sg", "vs", "vb", "vr", "dp") or part[:7] == "atlasv1":
                makers.update(("sendgrid", "provider"))
    if "~" in low and ("7q~" in low or "8q~" in low):
        makers.add("entra")
    if "dapi" in low:
        makers.add("provider")
    if ":" in low and (":aa" in low or "telegram" in low or "bot" in low):
        makers.add("telegram")
    if "hook" in low:
        makers.add("webhook")
    key, secret, token, word = "key" in low, "secret" in low, "token" in low, "pass" in low
    if key or "sig=" in low or secret:
        makers.add("azure")
    rules: list[Rule] = []
    if "private" in low:
        rules += (_private_tags, _pem)
    rules += [rule for name, rule in _MAKER_RULES.items() if name in makers]
    if "@" in low and "://" in low:
        rules += (_DB_URL, _URL)
    if "auth" in low:
        rules.append(_HEADERS)
    if "bearer" in low:
        rules.append(_BEARER)
    if "basic" in low:
        rules.append(_BASIC)
    if "cookie" in low:
        rules.append(_COOKIE)
    if key and "_KEY" in text:
        rules.append(_ENV_KEY)
    credential = "credential" in low
    if word or key or secret or token or credential or "pwd" in low or "connection" in low:
        rules += (_ASSIGNMENT, _FLAGS, _NETRC, _TOLD, _NEAR)
    if " -" in low and (":" in low or "%" in low):
        rules.append(_USERS)
    if "mysql" in low or "mariadb" in low or "sshpass" in low or "redis-cli" in low or " login" in low:
        rules.append(_SHORT_FLAGS)
    if (
        ".ssh" in low
        or ".aws" in low
        or ".kube" in low
        or "gcloud" in low
        or ".gnupg" in low
        or ".azure" in low
        or "id_" in low
    ):
        rules.append(_KEY_PATHS)
    return rules
