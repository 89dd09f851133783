"""Credentials are found and cut out before the first byte of a text is written.

`redact` is pure and quick: a text is looked at by a rule only when one of the rule's anchors (a plain
substring) occurs in it, so ordinary talk costs a few microseconds. Two families of rules stand here: shapes
that are a credential wherever they occur (`SHAPES`), and assignments (`password: ...`, `api_key=...`) whose
value must look like a secret rather than like prose, a placeholder or a reference to one.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One credential: what it looks like and where it stood in the text that was given."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redaction:
    """The text without its credentials, and what was cut out (never the credential itself)."""

    text: str
    findings: tuple[Finding, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds found, each once, in order."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))


@dataclass(frozen=True, slots=True)
class _Shape:
    """A credential known by its form. Group `v`, where there is one, is the part to cut."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    dense: bool = False  # the value must also be as uneven as a random one
    folded: bool = False  # the anchors are looked for without regard to case


def _shape(kind: str, anchors: str, pattern: str, *, dense: bool = False) -> _Shape:
    return _Shape(kind, tuple(anchors.split()), re.compile(pattern), dense, "(?i" in pattern)


# A credential does not begin in the middle of a word, and goes on as far as its alphabet does.
_B = r"(?<![A-Za-z0-9_])"
_E = r"(?![A-Za-z0-9_])"

SHAPES: tuple[_Shape, ...] = (
    _shape(
        "private-key",
        "PRIVATE",
        r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[^\0]{0,20000}?"
        r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|(?=-----BEGIN )|\Z)",
    ),
    _shape("private-key", "AGE-SECRET-KEY-", rf"{_B}AGE-SECRET-KEY-1[A-Z0-9]{{50,}}"),
    _shape(
        "aws-access-key",
        "AKIA ASIA ABIA ACCA AROA AIDA",
        rf"{_B}(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{{16}}{_E}",
        dense=True,
    ),
    _shape(
        "aws-secret-key",
        "aws secret_access secretaccess secret-access",
        r"(?i:aws.{0,20}?(?:secret|sk)|secret.?access.?key).{0,25}?(?<![A-Za-z0-9/+=])(?P<v>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        dense=True,
    ),
    _shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_B}gh[pousr]_[A-Za-z0-9]{{30,255}}{_E}", dense=True),
    _shape("github-token", "github_pat_", rf"{_B}github_pat_[A-Za-z0-9_]{{36,255}}", dense=True),
    _shape(
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glcbt- glft- glsoat- gloas-",
        rf"{_B}gl(?:pat|dt|rt|ptt|cbt|ft|soat|oas)-[A-Za-z0-9_\-.]{{20,}}",
        dense=True,
    ),
    _shape("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxe.", rf"{_B}xox[bparse][-.][A-Za-z0-9-.]{{10,}}"),
    _shape("slack-token", "xapp-", rf"{_B}xapp-\d-[A-Za-z0-9-]{{20,}}"),
    _shape(
        "webhook-url",
        "hooks.slack.com /api/webhooks/ webhook.office.com",
        r"https://(?:hooks\.slack\.com/(?:services|workflows|triggers)/|(?:\w+\.)?discord(?:app)?\.com/api/webhooks/"
        r"|[\w.-]+\.webhook\.office\.com/)(?P<v>[A-Za-z0-9_@/.-]{20,})",
    ),
    _shape("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", rf"{_B}(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{{16,}}", dense=True),
    _shape("anthropic-key", "sk-ant-", rf"{_B}sk-ant-[A-Za-z0-9_-]{{20,}}", dense=True),
    _shape("openai-key", "sk-", rf"{_B}sk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{{20,}}", dense=True),
    _shape("google-key", "AIza", rf"{_B}AIza[A-Za-z0-9_-]{{35}}"),
    _shape("google-oauth", "ya29. GOCSPX- 1//0", rf"{_B}(?:ya29\.[A-Za-z0-9_-]{{20,}}|GOCSPX-[A-Za-z0-9_-]{{20,}}|1//0[A-Za-z0-9_-]{{30,}})"),
    _shape("npm-token", "npm_", rf"{_B}npm_[A-Za-z0-9]{{36}}{_E}", dense=True),
    _shape("pypi-token", "pypi-", rf"{_B}pypi-[A-Za-z0-9_-]{{40,}}", dense=True),
    _shape("jwt", "eyJ", rf"{_B}eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}(?:\.[A-Za-z0-9_-]{{8,}}){{1,3}}"),
    _shape("sendgrid-key", "SG.", rf"{_B}SG\.[A-Za-z0-9_-]{{16,}}\.[A-Za-z0-9_-]{{16,}}"),
    _shape("mailgun-key", "key-", rf"{_B}key-[0-9a-f]{{32}}{_E}"),
    _shape("mailchimp-key", "-us", rf"{_B}[0-9a-f]{{32}}-us\d{{1,2}}{_E}"),
    _shape("twilio-key", "SK", rf"{_B}SK[0-9a-f]{{32}}{_E}"),
    _shape("digitalocean-token", "_v1_", rf"{_B}do[por]_v1_[0-9a-f]{{64}}{_E}"),
    _shape("huggingface-token", "hf_ api_org_", rf"{_B}(?:hf_|api_org_)[A-Za-z0-9]{{30,}}", dense=True),
    _shape("databricks-token", "dapi", rf"{_B}dapi[0-9a-f]{{32}}(?:-\d)?{_E}"),
    _shape("shopify-token", "shpat_ shpca_ shppa_ shpss_", rf"{_B}shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_E}"),
    _shape("vault-token", "hvs. hvb. hvr.", rf"{_B}hv[sbr]\.[A-Za-z0-9_-]{{20,}}", dense=True),
    _shape("terraform-token", ".atlasv1.", rf"{_B}[A-Za-z0-9]{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{50,}}"),
    _shape("telegram-token", ":AA", r"(?<![A-Za-z0-9])\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _shape("discord-token", "discord bot token", rf"(?i:){_B}[MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,40}}{_E}", dense=True),
    _shape(
        "service-token",
        "lin_api_ ntn_ dp.pt. dp.st. glsa_ glc_ NRAK- NRJS- PMAK- sq0atp- sq0csp- gsk_ xai- r8_ pplx- sbp_ sntrys_ "
        "fm2_ dckr_pat_ ATATT3 figd_ rnd_ tskey- sgp_ ops_ey rubygems_ pscale_ nfp_ vcp_ "
        "phx_ phc_ cio",
        rf"{_B}(?:lin_api_[A-Za-z0-9]{{32,}}|ntn_[A-Za-z0-9]{{40,}}|dp\.[ps]t\.[A-Za-z0-9]{{40,}}"
        rf"|gl(?:sa|c)_[A-Za-z0-9_+/=]{{32,}}|NR(?:AK|JS)-[A-Za-z0-9]{{19,}}|PMAK-[0-9a-f]{{24}}-[0-9a-f]{{34}}"
        rf"|sq0(?:atp|csp)-[A-Za-z0-9_-]{{22,}}|gsk_[A-Za-z0-9]{{40,}}|xai-[A-Za-z0-9]{{60,}}|r8_[A-Za-z0-9]{{37,}}"
        rf"|pplx-[A-Za-z0-9]{{40,}}|sbp_[0-9a-f]{{40}}|sntrys_[A-Za-z0-9_+/=]{{40,}}|fm2_[A-Za-z0-9_+/=]{{40,}}"
        rf"|dckr_pat_[A-Za-z0-9_-]{{20,}}|ATATT3[A-Za-z0-9_\-=]{{40,}}|figd_[A-Za-z0-9_-]{{30,}}|rnd_[A-Za-z0-9]{{28,}}"
        rf"|tskey-[a-z]+-[A-Za-z0-9-]{{20,}}|sgp_[A-Za-z0-9_]{{40,}}|ops_ey[A-Za-z0-9_-]{{60,}}|rubygems_[0-9a-f]{{48}}"
        rf"|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_\-.=]{{32,}}|nfp_[A-Za-z0-9_]{{36,}}|vcp_[A-Za-z0-9]{{24,}}"
        rf"|ph[xc]_[A-Za-z0-9]{{40,}}|cio[A-Za-z0-9]{{32}})",
        dense=True,
    ),
    _shape(
        "connection-string",
        "://",
        r"://[^\s:/@?#\"'<>]{0,128}:(?P<v>[^\s/@\"'<>`]{3,256})@[A-Za-z0-9\[]",
    ),
    _shape("connection-string", "://", r"://(?P<v>[A-Za-z0-9_-]{32,256})@[A-Za-z0-9]", dense=True),
    _shape("azure-key", "accountkey= sharedaccesskey=", r"(?i:AccountKey|SharedAccessKey)=(?P<v>[A-Za-z0-9+/]{30,}={0,2})"),
    _shape("signed-url", "sig= signature=", r"[?&](?i:sig|signature|x-amz-signature)=(?P<v>[A-Za-z0-9%+/=_-]{30,})"),
    _shape("bearer-token", "bearer", r"(?i:\bbearer)[\s:]{1,4}[\"']?(?P<v>[A-Za-z0-9_\-.~+/]{16,}={0,2})", dense=True),
    _shape("basic-auth", "basic", r"(?i:\bbasic)\s{1,3}(?P<v>[A-Za-z0-9+/]{8,}={0,2})(?![A-Za-z0-9+/=])"),
    _shape("netrc", "machine", r"(?i:\bmachine\s+\S+\s+login\s+\S+\s+password)\s+(?P<v>\S{4,})"),
    _shape("password", "curl wget http", r"(?:\bcurl|\bwget|\bhttp)\b[^\n]{0,200}?\s(?:-u|--user)[ =][\"']?[^\s:\"']{1,64}:(?P<v>[^\s\"']{3,})"),
    _shape("password", "mysql", r"\bmysql(?:dump|admin)?\b[^\n]{0,120}?\s-p(?P<v>[^\s\"'-][^\s\"']{3,})"),
    _shape(
        "password",
        "--pass --pwd --secret --token --api-key --apikey",
        r"--(?:[a-z]+-)?(?:password|passwd|passphrase|pass|pwd|secret|token|api-?key)[ =](?P<v>[\"']?[^\s\"']{6,})",
        dense=True,
    ),
)  # fmt: skip

# What may stand before the `=` or `:` of an assignment. The name may go on (`password_prod`, `tokenValue`), but
# not into another word (`passwordless`, `tokenizer`), nor into what is merely about a secret (`token_count`).
_PASSWORD_WORDS = (
    r"password|passwd|passphrase|passcode|pwd|passwort|contraseña|mot[_ ]de[_ ]passe|密码|パスワード|пароль"
)
_TOKEN_WORDS = (
    r"api[_\- ]?key|access[_\- ]?key|secret[_\- ]?key|private[_\- ]?key|signing[_\- ]?key|encryption[_\- ]?key"
    r"|auth[_\- ]?key|account[_\- ]?key|master[_\- ]?key|client[_\- ]?secret|secret|token|credentials?|license[_\- ]?key"
)
_ASSIGN_ANCHORS = (
    "pass", "pwd", "secret", "token", "key", "credential", "contraseña", "密码", "パスワード", "пароль",
)  # fmt: skip
_NAME = re.compile(f"{_PASSWORD_WORDS}|{_TOKEN_WORDS}")
_ASSIGNMENT = re.compile(
    rf"(?:(?P<pw>(?i:{_PASSWORD_WORDS}))|(?P<tok>(?i:{_TOKEN_WORDS})))"
    r"(?P<more>[_\-.][A-Za-z0-9_\-.]{0,40}|(?-i:[A-Z0-9])[A-Za-z0-9_]{0,40})?"
    r"[\"'`\]]{0,3}"
    r"(?P<op>[ \t]{0,4}(?:=>|:=|==?|:|：)[ \t]{0,4}(?:\n[ \t]{0,8})?"
    r"|[ \t]{1,3}(?:is|was|ist|es|est)[ \t]{1,3}(?:now[ \t]+|set to[ \t]+)?)"
    rf"(?!(?i:{_PASSWORD_WORDS}|{_TOKEN_WORDS})[ \t]{{0,4}}[=:])"  # that is an assignment of its own
    r"(?:(?P<q>[\"'`])(?P<quoted>[^\"'`\n]{3,400})(?P=q)|(?P<bare>[^\s\"'`,;)}\]]{4,400}))"
)
_ABOUT = re.compile(
    r"(?i)[_\-.]?(?:length|len|min|max|size|count|policy|hash|file|path|name|url|uri|id|field|type|expiry|expires|expired|"
    r"expiration|ttl|env|var|limit|budget|rotation|format|prefix|header|manager|store|provider|version|age|usage|used|"
    r"rate|cost|price|window|endpoint|class|column|index|input|label|hint|prompt|reset|kind|scope|arn|ref|algorithm|"
    r"enabled|required|strength|issuer|audience)s?\Z"
)
_PLACEHOLDER = re.compile(
    r"(?i)\A(?:[<\[{(%$*•.#_\-x]+\Z|[<\[{(].*|\$[{(].*|\$[a-z_]+|%[a-z_]+%?|%\(.*|\*{3,}.*|x{4,}.*|your[-_ ].*|my[-_ ]?(?:secret|password|token|api)?.*key|"
    r"example.*|placeholder.*|change[-_]?me.*|changeit|redacted.*|dummy.*|sample.*|fake.*|foo(?:bar)?|bar|baz|todo|tbd|"
    r"none|null|nil|undefined|true|false|yes|no|string|str|text|int|bytes|bool|optional|required|mandatory|empty|unset|"
    r"missing|invalid|expired|wrong|correct|hidden|secret|password|token|key|value|env|unknown|n/?a|"
    r"insert[-_].*|enter[-_].*|put[-_].*|replace[-_].*|\.{3}.*)\Z"
)
_REFERENCE = re.compile(
    r"\A(?:[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+(?:[(\[].*)?|[A-Za-z_][\w.]*[(\[].*|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|"
    r"[a-z]+(?:[_-][a-z]+){1,8}|[A-Za-z][a-z]+(?:[A-Z][a-z]+)+|(?:\.{0,2}|~)/\S*|(?:https?|file|s3|gs|vault|op|env)://\S*|"
    r"arn:\S*|v?\d+(?:\.\d+)+\S*|\d{4}-\d\d-\d\d\S*|\d+(?:[.,]\d+)?[a-zA-Z%]{0,8})\Z"
)


# Asked of every value that might be a secret: by the pattern engine, since there may be a hundred thousand in a text.
_DIGIT, _DIGIT_ANYWHERE = re.compile("[0-9]"), re.compile(r"\d")
_LETTER = re.compile(r"[A-Za-z]|[^\W\d_]")
_ENOUGH_TO_TELL = 128


def redact(text: str) -> Redaction:
    """Cut every credential out of `text`, leaving `[redacted: kind]` where it stood.

    Pure and idempotent: redacting a redacted text changes nothing. Text about credentials ("rotate the API key
    every 90 days", `api_key = settings.api_key`, `password: <yours>`) stays as it is.

    >>> redact("nothing to hide").findings
    ()
    """
    lowered = text.lower()
    spans: list[Finding] = []
    for shape in SHAPES:
        seen = lowered if shape.folded else text
        for anchor in shape.anchors:
            if anchor in seen:
                spans.extend(_matches(shape, text))
                break
    for anchor in _ASSIGN_ANCHORS:
        if anchor in lowered:
            spans.extend(_assignments(text, lowered))
            break
    if not spans:
        return Redaction(text)
    findings = _apart(spans)
    parts, last = [], 0
    for found in findings:
        parts += [text[last : found.start], f"[redacted: {found.kind}]"]
        last = found.end
    return Redaction("".join((*parts, text[last:])), findings)


def _matches(shape: _Shape, text: str) -> list[Finding]:
    out = []
    named = "v" in shape.pattern.groupindex
    for match in shape.pattern.finditer(text):
        value = match["v"] if named else match[0]
        if shape.dense and not _is_dense(value):
            continue
        if shape.kind == "basic-auth" and not _is_basic(value):
            continue
        if shape.kind in {"connection-string", "password", "netrc"} and _PLACEHOLDER.match(value):
            continue
        start, end = match.span("v") if named else match.span()
        out.append(Finding(shape.kind, start, end))
    return out


def _assignments(text: str, lowered: str) -> list[Finding]:
    if len(lowered) != len(text):  # a few letters change length with their case; only ASCII names matter here
        lowered = "".join(ch.lower() if ch.isascii() else ch for ch in text)
    out = []
    at = 0
    while name := _NAME.search(lowered, at):
        match = _ASSIGNMENT.match(text, name.start())
        if match is None:
            at = name.start() + 1
            continue
        group = "quoted" if match["quoted"] is not None else "bare"
        is_password = match["pw"] is not None
        if _ABOUT.search(match["more"] or "") or not _is_value(match, group, is_password=is_password):
            # The value may itself be the name of the next assignment (`secret: token=...`).
            at = match.start("op")
            continue
        start, end = match.span(group)
        if group == "bare":
            end = start + len(match["bare"].rstrip(".:!?"))
        out.append(Finding("password" if is_password else "secret", start, end))
        at = end
    return out


def _is_value(match: re.Match[str], group: str, *, is_password: bool) -> bool:
    value = match[group].strip().rstrip(".:!?")
    spoken = match["op"].strip(" \t\n") not in {"=>", ":=", "=", "==", ":", "："}
    if _PLACEHOLDER.match(value) or (_REFERENCE.match(value) and not (is_password and group == "quoted")):
        return is_password and _is_bare_word(match, group, value, spoken=spoken)
    if not is_password:
        return (
            len(value) >= (16 if spoken else 10)
            and not (" " in value and group == "quoted")
            and _is_dense(value)
        )
    has_digit = _has_digit(value)
    if " " in value and group == "quoted" and not has_digit:
        return False
    signs = value.strip("-_.()")
    kinds = sum(
        (has_digit, value.upper() != value, value.lower() != value, bool(signs) and not signs.isalnum())
    )
    if spoken:
        return len(value) >= 6 and kinds >= 2 and has_digit and value.isascii()
    return (
        (len(value) >= 4 and kinds >= 2 and (has_digit or kinds >= 3))
        or (group == "quoted" and len(value) >= 4 and " " not in value)
        or _is_bare_word(match, group, value, spoken=spoken)
    )


def _is_bare_word(match: re.Match[str], group: str, value: str, *, spoken: bool) -> bool:
    """Whether a plain word is a password: `PASSWORD=swordfish` in a settings line, nothing after it."""
    if spoken or group != "bare" or not value.isalnum() or len(value) < 6 or _PLACEHOLDER.match(value):
        return False
    tight = match["op"] == "="
    rest = match.string[match.end() : match.end() + 1]
    return tight and rest in {"", "\n", "\r", " ", "&", ";", "'", '"'}


def _has_digit(value: str) -> bool:
    return (_DIGIT if value.isascii() else _DIGIT_ANYWHERE).search(value) is not None


def _is_dense(value: str) -> bool:
    """Whether `value` is as uneven as random characters: letters and digits, many different ones, no words."""
    body = value.strip("\"'`")
    if len(body) < 8 or _PLACEHOLDER.match(body):
        return False
    has_digit = _has_digit(body)
    has_letter = _LETTER.search(body) is not None
    mixed = body.lower() != body and body.upper() != body
    if not has_letter or not (has_digit or (mixed and len(body) >= 20)):
        return False
    if _REFERENCE.match(body) and len(body) < 40:
        return False
    body = body[:_ENOUGH_TO_TELL]
    counts = Counter(body)
    entropy = -sum(n / len(body) * math.log2(n / len(body)) for n in counts.values())
    return entropy >= (2.6 if len(body) < 16 else 3.0)


def _is_basic(value: str) -> bool:
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii() and len(decoded) >= 5


def _apart(spans: list[Finding]) -> tuple[Finding, ...]:
    """The findings in order, overlaps joined; the more specific kind (listed first) names the joint one."""
    out: list[Finding] = []
    for found in sorted(spans, key=lambda span: (span.start, -span.end)):
        if out and found.start < out[-1].end:
            last = out[-1]
            kind = last.kind if last.kind not in {"secret", "password"} else found.kind
            out[-1] = Finding(kind, last.start, max(last.end, found.end))
        else:
            out.append(found)
    return tuple(out)
