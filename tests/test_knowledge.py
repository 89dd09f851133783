"""Documents and linked folders: taken in, cut, searched beside memories, and never harmed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile

import pytest

import cairn
from cairn.language.documents import html_lines, plain_lines, topics
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here
from tests.waiting import calls_of, until

HARBOUR = (
    "---\ntags: [sea]\n---\n# Harbour\n\nBoats moor at the quay.\n\n## Springs\n\nHigh water comes at noon.\n"
)
KNOTS = "<title>Knots</title>\n<script>var bowline = 1</script>\n<h1>Bowline</h1>\n<p>It never slips &amp; holds.\n"
OPTIONS = {"embedding__provider": "none", "strategies__enabled": False}


@pytest.fixture
def notes(tmp_path):
    """A folder of a person's own notes, with a way out of it and things nobody should read."""
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (tmp_path / "outside.md").write_text("# Elsewhere\n\nA narwhal sleeps.\n")
    (folder / "harbour.md").write_text(HARBOUR)
    (folder / "deep" / "knots.html").write_text(KNOTS)
    (folder / ".git" / "hidden.md").write_text("# Hidden\n\nA narwhal hides.\n")
    for file in (folder / "harbour.md", folder / "deep" / "knots.html"):
        os.utime(file, (1_780_000_000, 1_780_000_000))  # what was written this very moment is looked at twice
    (folder / "way-out.md").symlink_to(tmp_path / "outside.md")
    (folder / "folder-out").symlink_to(tmp_path)
    return folder


def run(root, *words):
    return main(["--root", str(root), *words])


def told(capsys, root, *words, code=0):
    """What a command says with --json."""
    assert run(root, "--json", *words) == code
    return json.loads(capsys.readouterr().out)


def found(memory, query):
    return memory.search(query, user_id="alice", method="keyword", consistency="strong").knowledge


def truth(folder):
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_documents_are_cut_at_their_headings():
    """Fences hide headings, underlined titles count, a preamble has the title's name, HTML keeps its lines."""
    text = "Before.\n\nTitle\n=====\n```\n# no heading\n```\n## Two ##\nx\n# Three\n"
    cut = topics(plain_lines(text), "Doc")
    assert [(t.name, t.depth, t.line, t.parent) for t in cut] == [
        ("Doc", 0, 1, None),
        ("Title", 1, 3, None),
        ("Two", 2, 8, 1),
        ("Three", 1, 10, None),
    ]
    assert "# no heading" in cut[1].text
    assert topics(plain_lines("# not a heading"), "T", headings=False)[0].name == "T"
    page = html_lines(KNOTS)
    assert page.title == "Knots"
    assert [(t.name, t.line, t.text) for t in topics(page, page.title)] == [
        ("Bowline", 3, "It never slips & holds.")
    ]
    assert topics(html_lines("<svg><p>x" * 2000), "T")  # hostile nesting costs nothing


def test_a_linked_folder_is_searched_where_it_lies(tmp_path, notes):
    """Every document of it is found with file, heading and line; links and hidden files are not followed, no byte is
    touched, a second look reads nothing again, an edit and a removal are followed, and a vanished folder loses nothing.
    """
    before = truth(notes)
    with cairn.open_blocking(tmp_path / "root", **OPTIONS) as memory:
        linked = memory.knowledge_link(str(notes))
        assert (linked["name"], linked["documents"]) == ("notes", 2)
        assert memory.knowledge_link(str(notes)) == linked
        hit = found(memory, "high water at noon")[0]
        assert (hit.path, hit.fields["line"]) == (str(notes / "harbour.md"), 8)
        assert hit.fields["topic_path"] == "Harbour > Springs"
        assert hit.fields["category"] == "notes"
        assert found(memory, "bowline")[0].fields["line"] == 3
        assert found(memory, "narwhal") == ()
        recalled = memory.recall("when does high water come", user_id="alice")
        assert f"{notes / 'harbour.md'}:8" in recalled.prompt
        assert truth(notes) == before
        assert memory.parts.indexer.scan().queued == 0
        linked_at = "default_app/default_project/knowledge/.linked/notes"
        with pytest.raises(cairn.Invalid, match="only read"):
            memory.parts.linked.write(
                memory.parts.linked.list(memory.parts.root.knowledge(hit.scope.space))[-1], "x"
            )
        (notes / "harbour.md").write_text(HARBOUR.replace("noon", "midnight"))
        until(lambda: found(memory, "midnight"), "the edit is followed")
        (notes / "deep" / "knots.html").unlink()
        until(lambda: not found(memory, "bowline"), "the removed file is forgotten")
        notes.rename(tmp_path / "gone")
        listed = memory.knowledge_links()
        assert "not there" in listed["links"][0]["trouble"]
        result = memory.search("midnight", user_id="alice", method="keyword", consistency="strong")
        assert result.knowledge  # what was known stays
        assert "not there" in str(memory.knowledge_list()["notes"])
        assert len(memory.knowledge_list()["notes"]) == 1, "its files are not named one by one"
        assert memory.parts.indexer.scan().queued == 0, "its files are not tried one by one"
        assert memory.parts.indexer.hint([f"{linked_at}/harbour.md"]) == 0
        (tmp_path / "gone").rename(notes)
        assert found(memory, "midnight")
        memory.knowledge_unlink("notes")
        assert found(memory, "midnight") == ()
        assert memory.knowledge_list()["total"] == 0
    assert (notes / "harbour.md").exists()


def test_a_rebuilt_index_knows_the_documents_again(tmp_path, notes):
    """E2: what is linked and what was taken in comes back from the files alone, also while the index is away."""
    with cairn.open_blocking(tmp_path / "root", background=False, **OPTIONS) as memory:
        memory.knowledge_link(str(notes))
        memory.knowledge_add([str(tmp_path / "outside.md")])
        before = sorted(hit.entry_id for hit in (*found(memory, "water"), *found(memory, "narwhal")))
        memory.parts.waits.rebuild()
        assert sorted(hit.entry_id for hit in (*found(memory, "water"), *found(memory, "narwhal"))) == before
        scope = found(memory, "water")[0].scope
        scanned = memory.parts.scan.of(scope)
        assert (
            len(scanned.page(scope, ["knowledge"]).rowids)
            == memory.parts.index.page(scope, ["knowledge"]).total
        )


def test_files_are_taken_in_with_their_address_and_hash(tmp_path, notes, capsys):
    """`knowledge add` keeps Markdown with the original's address and hash; the same again changes nothing, a newer
    version replaces it (its title, too, unless a person gave one), two of one name stay two, and a document can be renamed
    and removed. The original stays.
    """
    root = tmp_path / "root"
    (notes / "deep" / "harbour.md").write_text("# Harbour\n\nAnother quay with cranes.\n")
    added = told(capsys, root, "knowledge", "add", str(notes), str(tmp_path / "outside.md"))["documents"]
    assert {one["change"] for one in added} == {"added"}
    assert sorted(one["title"] for one in added) == ["Elsewhere", "Harbour", "Harbour", "Knots"]
    again = told(capsys, root, "knowledge", "add", str(notes / "harbour.md"))["documents"]
    assert again[0]["change"] == "unchanged"
    shown = told(capsys, root, "knowledge", "show", again[0]["doc_id"])
    assert shown["original_file_path"] == str(notes / "harbour.md")
    assert shown["sha256"] == hashlib.sha256(HARBOUR.encode()).hexdigest()
    assert [topic["topic_name"] for topic in shown["topics"]] == ["Harbour", "Springs"]
    kept = (root / shown["md_path"]).read_text()
    assert "tags:" in kept  # what the document brought along is still there
    assert kept.splitlines()[shown["topics"][1]["line"] - 1] == "## Springs"
    (notes / "harbour.md").write_text(HARBOUR.replace("noon", "dusk"))
    newer = told(capsys, root, "knowledge", "add", str(notes / "harbour.md"))["documents"][0]
    assert (newer["change"], newer["doc_id"]) == ("replaced", again[0]["doc_id"])
    assert told(capsys, root, "knowledge", "list")["total"] == 4
    hits = told(capsys, root, "knowledge", "search", "--content", "dusk")["hits"]
    assert [hit["content"] for hit in hits] == ["High water comes at dusk."]
    assert told(capsys, root, "show", hits[0]["topic_id"])["sections"] == {
        "Content": "High water comes at dusk."
    }
    (notes / "harbour.md").write_text(HARBOUR.replace("# Harbour", "# Haven"))
    assert (
        told(capsys, root, "knowledge", "add", str(notes / "harbour.md"))["documents"][0]["title"] == "Haven"
    )
    told(capsys, root, "knowledge", "edit", newer["doc_id"], "--title", "Quay", "--category-id", "sea")
    (notes / "harbour.md").write_text(HARBOUR.replace("# Harbour", "# Port"))
    told(capsys, root, "knowledge", "add", str(notes / "harbour.md"))
    assert told(capsys, root, "knowledge", "list", "--category", "sea")["documents"][0]["title"] == "Quay"
    assert not (root / shown["md_path"]).exists()
    told(capsys, root, "knowledge", "remove", newer["doc_id"])
    assert told(capsys, root, "knowledge", "list")["total"] == 3
    assert (notes / "harbour.md").exists()
    assert run(root, "knowledge", "show", newer["doc_id"]) == 3


def test_what_cannot_be_taken_in_is_named_and_harms_nothing(tmp_path, notes, capsys, monkeypatch):
    """A damaged PDF, a picture, bytes that are no text, a file too large, a missing one, a folder in the root or around
    it, a name that is taken, a pipe: each is refused by name with the next step, and the others are taken in. Of a linked
    folder the file is named as its owner knows it. A link to what is there already adds nothing.
    """
    root = tmp_path / "root"
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing of the kind")
    (notes / "latin.txt").write_bytes("Küste".encode("latin-1"))
    monkeypatch.setattr("cairn.engines.convert.MAX_BYTES", 5000)
    monkeypatch.setattr("cairn.operations.library.MAX_BYTES", 5000)
    monkeypatch.setattr("cairn.engines.links.MAX_BYTES", 5000)
    (notes / "huge.txt").write_text("word " * 2000)
    missing = str(tmp_path / "none.md")
    os.mkfifo(tmp_path / "pipe.md")
    data = told(capsys, root, "knowledge", "add", str(notes), missing, str(tmp_path / "pipe.md"), code=1)
    assert len(data["documents"]) == 2
    refused = {os.path.basename(one["path"]): one["reason"] for one in data["refused"]}
    assert set(refused) == {"broken.pdf", "latin.txt", "huge.txt", "none.md", "pipe.md"}
    (tmp_path / "other-name").symlink_to(notes)
    again = told(capsys, root, "knowledge", "add", str(tmp_path / "other-name"), code=1)
    assert {one["change"] for one in again["documents"]} == {"unchanged"}
    assert "cannot be read as PDF" in refused["broken.pdf"]
    assert "UTF-8" in refused["latin.txt"]
    assert "split it" in refused["huge.txt"]
    linked = told(capsys, root, "knowledge", "link", str(notes))
    assert linked["documents"] == 2
    notes_on = " ".join(told(capsys, root, "knowledge", "links")["notes"])
    assert all(str(notes / name) in notes_on for name in ("broken.pdf", "latin.txt", "huge.txt"))
    following = " ".join(one["next"] for one in told(capsys, root, "doctor", code=1)["findings"])
    assert f"mend {notes / 'latin.txt'};" in following
    for path, code, words in (
        (root, 2, "lie in each other"),
        (tmp_path, 2, "lie in each other"),
        (tmp_path / "none", 3, "is no folder"),
    ):
        assert run(root, "knowledge", "link", str(path)) == code
        assert words in capsys.readouterr().err
    (tmp_path / "more" / "notes").mkdir(parents=True)
    assert run(root, "knowledge", "link", str(tmp_path / "more" / "notes")) == 4
    assert "--name" in capsys.readouterr().err
    assert run(root, "knowledge", "unlink", "nothing") == 3
    assert run(root, "knowledge", "add", str(root / "default_app"), "--category", "a/b") == 1
    (root / "default_app" / "default_project" / "knowledge" / "links.toml").write_text("[links\n")
    assert run(root, "knowledge", "links") == 2
    assert "links.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("empty.md", b"", "no text"),
        ("blank.txt", b" \n\n", "no text"),
        ("head.md", b"---\ntitle: T\n---\n", "no text"),
        ("script.html", b"<html><script>alert(1)</script></html>", "no text"),
        ("program.md", b"\x7fELF\0\1\2", "byte 4 is NUL"),
        ("wide.txt", "Harbour".encode("utf-16"), "UTF-8"),
        ("no.docx", b"PK\3\4 nothing", "cannot be read as DOCX"),
        ("odd.docx", None, "cannot be read as DOCX: it is damaged"),
        ("no.pdf", b"hello", "cannot be read as PDF"),
    ],
)
def test_what_holds_no_text_is_refused_by_every_surface(tmp_path, capsys, name, data, why):
    """By the command and over HTTP: the file and the reason are named, nothing is written, and what an earlier version of
    the file said is still found.
    """
    if name.endswith((".docx", ".pdf")):
        pytest.importorskip("docx" if name.endswith("docx") else "pypdf")
    if data is None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as made:
            made.writestr("[Content_Types].xml", "<Types/>")
            made.writestr("word/document.xml", "<a/>")
        data = packed.getvalue()
    root, file = tmp_path / "root", tmp_path / name
    if name.endswith((".md", ".txt")):
        file.write_text("The bell of the harbour rings at noon.\n")
        told(capsys, root, "knowledge", "add", str(file))
    file.write_bytes(data)
    (refused,) = told(capsys, root, "knowledge", "add", str(file), code=1)["refused"]
    assert refused["path"] == str(file)
    assert why in refused["reason"]
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:
        before = sorted(root.glob("*/*/knowledge/**/*.md"))
        head = f'--e\r\nContent-Disposition: form-data; name="title"\r\n\r\nT\r\n--e\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        raw = head.encode() + data + b"\r\n--e--\r\n"
        kind = {"Content-Type": "multipart/form-data; boundary=e"}
        status, answer = server.call("POST", "/api/v1/knowledge/documents", raw=raw, headers=kind)
        assert status == 422, answer
        assert why in answer["error"]["message"] or not data
        assert sorted(root.glob("*/*/knowledge/**/*.md")) == before
    if name.endswith((".md", ".txt")):
        assert told(capsys, root, "knowledge", "search", "harbour bell")["hits"]


def test_a_linked_folder_that_may_not_be_read_is_named_and_kept(tmp_path, notes, capsys, monkeypatch):
    """What was known of it is answered, links and doctor name it, and once it is open again nothing was lost."""
    root = tmp_path / "root"
    (notes / "closed").mkdir()
    (notes / "closed" / "bell.md").write_text("# Bell\n\nThe bell of the harbour rings at noon.\n")
    told(capsys, root, "knowledge", "link", str(notes))
    real = os.scandir

    def refusing(path="."):
        if str(path) == str(notes / "closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    with monkeypatch.context() as patch:  # whoever runs the tests may be somebody who may read everything
        patch.setattr("cairn.engines.links.os.scandir", refusing)
        assert told(capsys, root, "knowledge", "search", "harbour bell")["hits"]
        assert str(notes / "closed") in str(told(capsys, root, "knowledge", "links")["notes"])
        found = [
            one for one in told(capsys, root, "doctor")["findings"] if str(notes / "closed") in one["what"]
        ]
        assert [one["level"] for one in found] == ["warn"]
        assert "Permission denied" in found[0]["what"]
    assert told(capsys, root, "knowledge", "search", "harbour bell")["hits"]
    assert told(capsys, root, "doctor")["findings"] == []


def test_doctor_names_a_linked_folder_that_is_away(tmp_path, notes, capsys):
    """A drive that is not plugged in is a warning with its folder and the next step; a broken list of links a failure."""
    root, space = tmp_path / "root", ("--app", "shop", "--project", "web")

    def about_links(code):
        found = told(capsys, root, "doctor", code=code)["findings"]
        return [(one["level"], one["what"], one["next"]) for one in found if "link" in one["what"]]

    told(capsys, root, *space, "knowledge", "link", str(notes), "--name", "drive")
    assert about_links(0) == []
    notes.rename(tmp_path / "away")
    ((level, what, following),) = about_links(0)
    assert (level, str(notes) in what, "shop/web" in what) == ("warn", True, True)
    assert "`cairn --app shop --project web knowledge unlink drive`" in following
    (root / "shop" / "web" / "knowledge" / "links.toml").write_text("[links")
    ((level, what, _),) = about_links(1)
    assert (level, "links.toml" in what) == ("fail", True)


def test_pdf_and_word_files_are_read_and_refused_by_name_without_their_converter(tmp_path, monkeypatch):
    """The extra `documents` reads them; without it each is refused with the package to install."""
    docx = pytest.importorskip("docx")
    pytest.importorskip("pypdf")
    made = docx.Document()
    made.add_heading("Moorings", 1)
    made.add_paragraph("Two anchors hold a schooner.")
    made.save(str(tmp_path / "moorings.docx"))
    (tmp_path / "tides.pdf").write_bytes(_pdf("Neap tides follow the quarter moon."))
    with cairn.open_blocking(tmp_path / "root", background=False, **OPTIONS) as memory:
        done = memory.knowledge_add([str(tmp_path / "moorings.docx"), str(tmp_path / "tides.pdf")])
        assert not done["refused"]
        assert found(memory, "schooner")[0].fields["topic_path"].endswith("Moorings")
        assert found(memory, "quarter moon")[0].fields["topic"] == "Page 1"
        monkeypatch.setattr("cairn.engines.convert.find_spec", lambda _name: None)
        refused = memory.knowledge_add([str(tmp_path / "tides.pdf")])["refused"]
        assert "pypdf" in refused[0]["reason"]
        assert "cairn-memory[documents]" in refused[0]["reason"]
        assert found(memory, "quarter moon")  # what was taken in before stays


def _pdf(words: str) -> bytes:
    """A page with one line on it."""
    stream = f"BT /F1 12 Tf 20 100 Td ({words}) Tj ET".encode()
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R"
            b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
    ]
    out, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    start = len(out)
    out += b"xref\n0 5\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + b"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % start


def test_a_credential_in_a_document_is_cut_out(tmp_path):
    """Neither the note that is written nor the index of a linked folder holds it."""
    key = "AKIA" + "Z3QW7RT2VB9KX5LM"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "keys.md").write_text(f"# Keys\n\nThe gate opens with {key} today.\n")
    with cairn.open_blocking(tmp_path / "root", background=False, **OPTIONS) as memory:
        memory.knowledge_link(str(tmp_path / "notes"))
        memory.knowledge_add([str(tmp_path / "notes" / "keys.md")])
        assert len(found(memory, "gate opens today")) == 2
    for file in (tmp_path / "root").rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file


def test_a_search_beside_no_documents_costs_one_look(tmp_path, notes):
    """Whether a space has documents is asked within the look of the question, and that it has none is known until a change."""
    said = {
        "sender_id": "alice",
        "role": "user",
        "timestamp": 1_700_000_000_000,
        "content": "Dana likes tea.",
    }
    with cairn.open_blocking(tmp_path / "root", **OPTIONS) as memory:
        memory.add("s", [said])
        memory.flush("s")
        assert not found(memory, "tea")

        def ask():
            return memory.search("tea", user_id="alice", method="keyword")

        assert ask().episodes
        work = calls_of(ask)
        # Rows and vectors for the answer and behind it, and the state.
        assert work["_found"] <= 6
        assert work["wanted_model"] <= 2
        memory.knowledge_link(str(notes))
        assert found(memory, "boats")
        assert memory.search("boats", user_id="alice", method="keyword").knowledge
