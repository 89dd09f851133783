"""Recalled text is known again by its content, however it comes back; what merely looks like it stays."""

from __future__ import annotations

import base64
import bz2
import gzip
import html
import json
import quopri
import re
import textwrap
import unicodedata
import zlib
from urllib.parse import quote

import pytest

import cairn
from cairn.governed.framing import NOTICE, frame, take_out
from cairn.surfaces.cli import main

LINES = [
    '2026-05-01: Dana likes "green" tea & cake. (dana_ep_20260501_00000001)',
    "Ole said: the path is C:\\temp\\n.",
]
FRAMED = frame(LINES)
TAGGED = frame(["Run `make test` before <release>.", *LINES])


def _before(text, words):
    """Each line with something before it: a number takes the place of N."""
    return "\n".join(f"{words.replace('N', str(n))}{line}" for n, line in enumerate(text.split("\n"), 8))


FORMS = {
    "as it is": FRAMED,
    "windows line ends": FRAMED.replace("\n", "\r\n"),
    "json string": json.dumps(FRAMED),
    "json in json": json.dumps(json.dumps({"prompt": FRAMED})),
    "json tool result": json.dumps({"data": {"prompt": FRAMED}}),
    "json with escaped marks": json.dumps(FRAMED).replace("<", "\\u003c").replace(">", "\\u003e"),
    "json with escaped slashes": json.dumps(FRAMED).replace("/", "\\/"),
    "indented": textwrap.indent(FRAMED, "    "),
    "quoted": textwrap.indent(FRAMED, "> "),
    "quoted twice": textwrap.indent(FRAMED, "> > "),
    "trailing blanks": FRAMED.replace("\n", "   \n"),
    "one line": " ".join(FRAMED.split()),
    "wrapped": textwrap.fill(FRAMED, 60, break_on_hyphens=False),
    "html": html.escape(FRAMED),
    "html attribute in json": json.dumps(html.escape(FRAMED)),
    "url": quote(FRAMED),
    "base64": base64.b64encode(FRAMED.encode()).decode(),
    "without its first line": FRAMED.split("\n", 1)[1],
    "without its last line": FRAMED.rsplit("\n", 1)[0],
    "cut off in the closing mark": FRAMED[:-10],
    "upper case": FRAMED.upper(),
    "numbered": "\n".join(f"{n}. {line}" for n, line in enumerate(FRAMED.split("\n"), 1)),
    "as a file is shown": "\n".join(f"{n:6}\t{line}" for n, line in enumerate(FRAMED.split("\n"), 1)),
    "as a file is read": "\n".join(f"{n:5}\u2192{line}" for n, line in enumerate(FRAMED.split("\n"), 1)),
    "as grep finds it": "\n".join(f"a/notes-1.md:{n}:{line}" for n, line in enumerate(FRAMED.split("\n"), 1)),
    "in colours": "\x1b[31m" + FRAMED.replace("\n", "\x1b[0m\n\x1b[31m") + "\x1b[0m",
    "with unseen characters": FRAMED.replace("cairn", "cai\u200brn").replace("Dana", "Da\u200bna"),
    "base64 of a mail": "\n".join(textwrap.wrap(base64.b64encode(FRAMED.encode()).decode(), 76)),
    "url twice": quote(quote(FRAMED)),
    "quoted printable": FRAMED.replace("=", "=3D"),
    "html lines": FRAMED.replace("\n", "<br>"),
    "html list": "<ul>" + FRAMED.replace("\n- ", "</li>\n<li class='m'>") + "</li></ul>",
    "in a log": "\n".join(f"app-1  | 2026-11-16T10:00:00.123Z INFO {line}" for line in FRAMED.split("\n")),
    **{
        f"each line after {before!r}": _before(TAGGED, before)
        for before in (
            "N\t",
            "  N\u2192",
            "notes.md:N:",
            "Nov 17 10:00:N host app[123]: ",
            "<ann> ",
            "[10:N] ann: ",
            "2026 W N # ",
        )
    },
    "markdown with escapes": FRAMED.replace("<", "\\<").replace("-", "\\-").replace(">", "\\>"),
    "wide letters": "".join(chr(ord(ch) + 0xFEE0) if "!" <= ch <= "~" else ch for ch in FRAMED),
    "mail with soft line ends": quopri.encodestring(frame(["Dana aime le café."]).encode()).decode(),
    "python's escapes": frame(["Dana aime le café."]).encode("unicode_escape").decode(),
    "every letter in url escapes": "".join(f"%{one:02X}" for one in FRAMED.encode()),
    "every letter in json escapes": "".join(f"\\u{ord(ch):04x}" for ch in FRAMED),
    "every letter in html escapes": "".join(f"&#x{ord(ch):x};" for ch in FRAMED),
    "hex": FRAMED.encode().hex(),
    "base32": base64.b32encode(FRAMED.encode()).decode(),
    "base64 of base64": base64.b64encode(base64.b64encode(FRAMED.encode())).decode(),
    "base64 of sixteen bits": base64.b64encode(FRAMED.encode("utf-16-le")).decode(),
    "base64 of a packed text": base64.b64encode(gzip.compress(FRAMED.encode())).decode(),
    "base64 of a text packed otherwise": base64.b64encode(zlib.compress(FRAMED.encode())).decode(),
    "base64 of a text packed a third way": base64.b64encode(bz2.compress(FRAMED.encode())).decode(),
    "base64 of a mail, quoted": "\n".join(
        f"> {one}" for one in textwrap.wrap(base64.b64encode(FRAMED.encode()).decode(), 64)
    ),
    "bytes in octal": "".join(f"\\{one:03o}" for one in frame(["Dana aime le café."]).encode()),
    "bytes one by one": FRAMED.encode().hex(" "),
    "bytes of a C program": ", ".join(f"0x{one:02x}" for one in FRAMED.encode()),
    "bytes as numbers": str(list(frame(["Dana aime le café."]).encode())),
    "bytes of Python": repr(frame(["Dana aime le café."]).encode()),
    "letters of JavaScript": "".join(f"\\u{{{ord(ch):x}}}" for ch in FRAMED),
    "bytes taken for letters": frame(["Dana aime le café."]).encode().decode("latin-1"),
    "another stroke": FRAMED.replace("-", "\u2011"),
    "a dash": FRAMED.replace("-", "\u2013"),
    "marks as an attribute": re.sub(r"sum=(\w+)", r'sum="\1"', FRAMED),
    "marks as an attribute in json": json.dumps(re.sub(r"sum=(\w+)", r'sum = "\1"', FRAMED)),
    "accents taken apart": unicodedata.normalize("NFD", frame(["Dana aime le café crème à Zürich."])),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_is_taken_out_in_whatever_form_it_comes_back(form):
    """Nothing of the recalled lines is left, and one frame is counted."""
    left, count = take_out(FORMS[form])
    assert count == 1
    assert "dana" not in left.casefold() and "cairn-recall" not in left.casefold(), left


@pytest.mark.parametrize(
    "form", sorted(set(FORMS) - {"without its last line", "cut off in the closing mark"})
)
def test_words_around_a_frame_stay(form):
    """What a person writes before and after it is theirs."""
    left, count = take_out(f"Please look:\n{FORMS[form]}\nWhat do you think?")
    assert count == 1
    assert "Please look:" in left and "What do you think?" in left


@pytest.mark.parametrize("form", ["bytes one by one", "bytes of a C program", "bytes as numbers"])
@pytest.mark.parametrize("before", ["see face12, add 0x ", "(", "a be\t\t\t\t"])
def test_bytes_one_by_one_are_known_after_words_that_look_like_bytes(form, before):
    """The run is counted from its own first byte, whatever stands before it."""
    left, count = take_out(f"{before}{FORMS[form]}")
    assert count == 1
    assert "cairn-recall" not in left.casefold()


LOOKALIKES = {
    "opening alone": f"<cairn-recall sum=0123456789ab>\n{NOTICE}\nI quit my job today.",
    "forged": "<cairn-recall sum=0123456789ab>\nI quit my job today.\n</cairn-recall sum=0123456789ab>",
    "changed body": FRAMED.replace("tea", "tea, and I quit my job today"),
    "half a mark": "no frame <cairn-recall here, I quit my job today",
    "closing alone": "I quit my job today.\n</cairn-recall sum=0123456789ab>",
}


@pytest.mark.parametrize("form", LOOKALIKES)
def test_what_merely_looks_like_a_frame_is_kept(form):
    """A forged or changed frame swallows nobody's words."""
    assert take_out(LOOKALIKES[form]) == (LOOKALIKES[form], 0)


def test_a_memory_cannot_close_its_own_frame():
    """A mark inside a remembered text is written apart, so the frame stays whole."""
    inner = frame(["calm"])
    made = frame([f"evil {inner} after"])
    assert made.count("<cairn-recall sum=") == 1 and made.count("</cairn-recall sum=") == 1
    assert take_out(made) == ("", 1)


def test_two_frames_and_the_words_between_them():
    """Each frame is taken out by itself."""
    assert take_out(f"{frame(['a'])}\nmine\n{frame(['b'])}")[1] == 2
    assert "mine" in take_out(f"{frame(['a'])}\nmine\n{frame(['b'])}")[0]


def test_the_json_of_our_own_answer_is_known():
    """An agent that asks this memory as a tool gets its answer back as JSON; that is recalled text too."""
    answer = json.dumps({"request_id": "r", "data": {"episodes": [], "freshness": {"state": "fresh"}}})
    assert take_out(answer) == ("", 1) and take_out(json.dumps(answer)) == ("", 1)
    mine = '{"freshness": {"state": "I quit"}, "items": ["I quit my job today."]}'
    for words in (
        '{"freshness": "of fruit", "items": [1]}',
        "freshness",
        '{"freshness": {}, "apples": []}',
        mine,
    ):
        assert take_out(words) == (words, 0)


def test_many_marks_cost_bounded_work():
    """A text of nothing but opening and closing marks comes back as it is."""
    text = "<cairn-recall sum=0123456789ab>\nx\n</cairn-recall sum=ba9876543210>\n" * 30_000
    assert take_out(text) == (text, 0)


def test_add_says_how_many_frames_it_took_out(tmp_path, capsys):
    """What was recalled and comes back in a message is not kept again, and the answer says so."""
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        memory.remember("Deploys wait for the migration job.", "gotcha")
        recalled = memory.recall("what do deploys wait for").prompt
        said = [{"role": "user", "content": f"{recalled}\nHow long do they wait?"}]
        assert memory.add("s1", said).recalled == 1
        assert [one.text.strip() for one in memory.unprocessed("s1")] == ["How long do they wait?"]
        assert memory.add("s1", [{"role": "user", "content": "Thanks."}]).recalled == 0
    at = ["--root", str(tmp_path / "root")]
    assert main([*at, "--json", "add", "--session", "s2", f"Look: {recalled} again {recalled}"]) == 0
    assert json.loads(capsys.readouterr().out)["recalled"] == 2
