"""Importing sessions: Claude Code, Codex and plain JSON lines; each once for ever, broken files alone."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.errors import Conflict, NotFound
from cairn.governed.framing import frame
from cairn.project.importers import Session, importer_for, said
from tests.project_kit import SetClock, event_lines, failures, make_repo, open_at, ready_repo, state, write
from tests.waiting import calls_of, until


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def claude(role, text, uuid, cwd="/x", **more):
    content = [{"type": "text", "text": text}] if role == "assistant" else text
    row = {
        "type": role,
        "uuid": uuid,
        "sessionId": "s",
        "timestamp": "2026-10-01T10:00:00.000Z",
        "cwd": str(cwd),
    }
    return {**row, "message": {"role": role, "content": content, "id": "m" + uuid}, **more}


def codex(role, text, kind="response_item"):
    piece = "input_text" if role != "assistant" else "output_text"
    payload = {"type": "message", "role": role, "content": [{"type": piece, "text": text}]}
    return {"timestamp": "2026-10-02T10:00:00.000Z", "type": kind, "payload": payload}


def texts(kind: str, path: Path) -> list[tuple[str, str]]:
    importer = importer_for(kind)
    return [(message.role, message.text) for message in importer.messages(Session(path, importer.item(path)))]


def test_claude_transcripts_by_allow_list(tmp_path):
    """Only what the person and the assistant said: no tools, thinking, meta, sidechains, summaries, copies, injections."""
    file = tmp_path / "abc.jsonl"
    reminder = "<system-reminder>\nsecret context\n</system-reminder>"
    file.write_text(
        lines(
            {"type": "file-history-snapshot"},
            claude("user", f"Fix the parser.{reminder}", "1"),
            claude("user", "Fix the parser.", "1"),
            claude("assistant", "I will look at src/a.py.", "2"),
            {
                **claude("assistant", "", "3"),
                "message": {"content": [{"type": "thinking", "thinking": "hm"}]},
            },
            {
                **claude("assistant", "", "4"),
                "message": {"content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
            },
            {
                **claude("user", "", "5"),
                "message": {
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "tool output"}]
                },
            },
            claude("user", "meta", "6", isMeta=True),
            claude("assistant", "side", "7", isSidechain=True),
            claude("user", "summary", "8", isCompactSummary=True),
            claude("user", "<command-name>/clear</command-name>", "9"),
            claude("user", "<local-command-stdout>ok</local-command-stdout>", "10"),
            {"type": "api-request-blob", "message": {"role": "user", "content": "Fix the parser."}},
            {"type": "attachment", "attachment": {"type": "hook_additional_context", "content": "injected"}},
            {"type": "ai-title", "aiTitle": "Parser work"},
            claude("user", [{"type": "text", "text": "Thanks"}, {"type": "image", "source": {}}], "11"),
            '{"type":"user","message":{"content":"half',
        )
    )
    assert texts("claude-local", file) == [
        ("user", "Fix the parser."),
        ("assistant", "I will look at src/a.py."),
        ("user", "Thanks"),
    ]


def test_codex_rollouts_read_response_items_only(tmp_path):
    """Legacy and paginated files give the same talk; developer messages and context wrappers are dropped."""
    file = tmp_path / "rollout-2026-10-02T10-00-00-thread1.jsonl"
    file.write_text(
        lines(
            {
                "type": "session_meta",
                "payload": {"id": "thread1", "cwd": "/x", "git": {"repository_url": "u"}},
            },
            codex("developer", "You are helpful"),
            codex("user", "<environment_context>cwd</environment_context>"),
            codex("user", "# AGENTS.md instructions for /x"),
            codex("user", "Add a retry"),
            {"type": "event_msg", "payload": {"type": "user_message", "message": "Add a retry"}},
            {"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "UserMessage"}}},
            {"type": "response_item", "payload": {"type": "reasoning", "summary": []}},
            {
                "type": "response_item",
                "payload": {"type": "function_call", "name": "shell", "arguments": "{}"},
            },
            codex("assistant", "Done: retries with backoff."),
            {"type": "compacted", "payload": {"message": "summary"}},
            codex("assistant", "The user wants a retry; it is done."),
            {"type": "event_msg", "payload": {"type": "token_count"}},
            {"type": "compacted", "payload": {"message": "Before: The user wants a retry; it is done."}},
        )
    )
    assert importer_for("codex-local").item(file) == "thread1"
    assert texts("codex-local", file) == [
        ("user", "Add a retry"),
        ("assistant", "Done: retries with backoff."),
    ]


def test_subagent_threads_are_passed_over(tmp_path):
    """A thread with a parent gives nothing."""
    file = tmp_path / "rollout-2026-10-02T10-00-00-t2.jsonl"
    file.write_text(
        lines({"type": "session_meta", "payload": {"parent_thread_id": "t1"}}, codex("user", "inner"))
    )
    assert texts("codex-local", file) == []


def test_generic_lines_of_several_spellings(tmp_path):
    """Roles and texts under their usual names; other lines are passed over."""
    file = tmp_path / "talk.jsonl"
    file.write_text(
        lines(
            {"role": "human", "text": "Hi", "timestamp": 1_700_000_000},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "system", "content": "rules"},
            {"type": "user", "message": {"content": "Bye"}},
        )
    )
    assert texts("jsonl", file) == [("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]


def test_nothing_recalled_or_injected_comes_back_as_new():
    """Recalled blocks and hook output are cut out of what was said."""
    recalled = frame(["Dana likes tea."])
    assert said(f"{recalled}\n\nWhat now?") == "What now?"
    assert said("<user-prompt-submit-hook>x</user-prompt-submit-hook>ok") == "ok"
    assert said("<environment_context>never closed") == ""
    assert said("I wrote <b>bold</b> text") == "I wrote <b>bold</b> text"


def make_sessions(folder: Path, cwd: Path, count: int = 3) -> Path:
    place = folder / "projects" / "slug"
    for number in range(count):
        write(
            place,
            {
                f"s{number}.jsonl": lines(
                    claude("user", f"Work item {number} in src/parcel/cli.py", f"u{number}", cwd),
                    claude(
                        "assistant",
                        f"We decided to use plan {number}. Careful: step {number} fails because of the lock. 12 passed.",
                        f"a{number}",
                        cwd,
                    ),
                )
            },
        )
    return folder / "projects"


def test_each_session_is_one_event_once_for_ever(tree, project, tmp_path):
    """M7, M19, M52: imported as events with signals; a second import brings nothing; the source tells how it went."""
    source = project.add_source("claude-local", make_sessions(tmp_path / "c", tree))
    assert source.lastSyncStatus == "never"
    [report] = project.import_()
    assert report.imported == 3
    events = [event for event in event_lines(tree) if event["kind"] == "imported_session"]
    assert [event["externalItemId"] for event in events] == ["s0", "s1", "s2"]
    assert events[0]["sourceId"] == source.id
    assert events[0]["sourceRef"] == "claude-local:s0"
    assert events[0]["summary"] == "Work item 0 in src/parcel/cli.py"
    assert "We decided to use plan 0." in events[0]["signals"]["decisions"]
    assert events[0]["signals"]["keyPaths"] == ["src/parcel/cli.py"]
    [again] = project.import_()
    assert again.imported == 0
    assert again.count("known") == 3
    [kept] = project.sources()
    assert (kept.lastSyncStatus, kept.lastSyncError, kept.lastImportedCount) == ("passed", None, 0)
    assert set(kept.to_json()) == {
        "id", "type", "path", "createdAt", "updatedAt", "lastSyncedAt", "lastSyncStatus", "lastSyncError", "lastImportedCount",
    }  # fmt: skip
    assert state(tree)["maintenance"]["importSourceCount"] == 1
    assert failures(project) == []


def test_a_session_that_grew_gives_only_what_is_new(tree, project, tmp_path):
    """A resumed session appends to its file: a second event with the new messages alone."""
    folder = make_sessions(tmp_path / "c", tree, 1)
    project.add_source("claude-local", folder)
    handed = []
    eager = open_at(tree, capture=lambda item, batch: handed.append([message.text for message in batch]))
    eager.import_(capture=True)
    with (folder / "slug/s0.jsonl").open("a") as handle:
        handle.write(lines(claude("user", "Now from now on use tabs.", "u9", tree)))
    [report] = eager.import_(capture=True)
    assert report.count("grown") == 1
    assert event_lines(tree)[-1]["signals"]["decisions"] == ["Now from now on use tabs."]
    assert [len(batch) for batch in handed] == [2, 1]
    assert handed[1] == ["Now from now on use tabs."]


def test_a_second_import_opens_only_what_changed(tree, tmp_path):
    """By place, size and times of a file that was left alone; same length and date do not hide a rewrite from it."""
    folder = make_sessions(tmp_path / "c", tree)
    write(
        folder / "slug",
        {"other.jsonl": lines(claude("user", "Elsewhere", "x", "/nowhere")), "empty.jsonl": "{}\n"},
    )
    just_written = datetime.fromtimestamp((folder / "slug/empty.jsonl").stat().st_ctime, UTC)
    clock = SetClock(just_written)
    project = open_at(tree, clock)
    source = project.add_source("claude-local", folder)
    reports = []

    def opened() -> int:
        return calls_of(lambda: reports.append(project.import_()[0].to_json()))["_of_claude"]

    first = opened()
    assert reports[-1] | {"imported": 3, "elsewhere": 1, "empty": 1, "failed": 0} == reports[-1]
    assert opened() > 0  # it could be in the writing still
    clock.at = just_written + timedelta(minutes=1)
    opened()
    assert opened() == 0
    assert reports[-1] | {"known": 3, "elsewhere": 1, "empty": 1, "failed": 0} == reports[-1]

    file = folder / "slug/s1.jsonl"
    before = file.stat()

    def rewritten() -> bool:
        file.write_text(file.read_text().replace("plan 1", "plan 7"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return file.stat().st_ctime_ns != before.st_ctime_ns

    until(rewritten)
    now = file.stat()
    assert (now.st_size, now.st_ino, now.st_mtime_ns) == (before.st_size, before.st_ino, before.st_mtime_ns)
    assert 0 < opened() < first
    assert reports[-1] | {"imported": 1, "known": 2} == reports[-1]
    assert "We decided to use plan 7." in event_lines(tree)[-1]["signals"]["decisions"]

    # What a look found says nothing of what this history took: that is the ledger's. And a damaged one costs a reading.
    assert opened() == 0
    seen = tree / ".cairn/automation/seen.json"
    kept = seen.read_text()
    assert "s1" not in kept
    project.init(force=True)
    assert project.add_source("claude-local", folder).id == source.id
    write(tree, {".cairn/automation/seen.json": kept})
    assert opened() > 0
    assert reports[-1] | {"imported": 3, "elsewhere": 1} == reports[-1]
    for damage in (
        "[",
        "[1]",
        json.dumps({source.id: 3}),
        json.dumps({source.id: {mark: [1] for mark in json.loads(kept)[source.id]}}),
    ):
        seen.write_text(damage)
        assert opened() > 0
        assert reports[-1] | {"known": 3, "failed": 0} == reports[-1]


def test_the_ledger_outlives_pruning(tree, tmp_path):
    """C7b: a session archived and even expired is not imported again."""
    clock = SetClock()
    project = open_at(tree, clock)
    project.add_source("claude-local", make_sessions(tmp_path / "c", tree))
    project.import_()
    project.consolidate()
    project.update()
    clock.pass_days(100)
    assert len(project.prune()[0].events) >= 4
    assert not [event for event in event_lines(tree) if event["kind"] == "imported_session"]
    clock.pass_days(200)
    assert project.prune()[0].expired
    [report] = project.import_()
    assert report.imported == 0
    assert failures(project) == []


def test_a_broken_file_fails_alone(tree, project, tmp_path):
    """M52: the others are imported; the source ends failed with the first error; a repaired file is taken later."""
    folder = make_sessions(tmp_path / "c", tree)
    bad = folder / "slug/s1.jsonl"
    good = bad.read_text()
    bad.write_text("not json at all\n\x00\x01\n")
    project.add_source("claude-local", folder)
    [report] = project.import_()
    assert report.imported == 2
    assert report.count("failed") == 1
    [kept] = project.sources()
    assert kept.lastSyncStatus == "failed"
    assert "s1.jsonl" in (kept.lastSyncError or "")
    assert "source" in project.status()["suggestedAction"]
    bad.write_text(good)
    [report] = project.import_()
    assert report.imported == 1
    assert project.sources()[0].lastSyncStatus == "passed"


def test_a_vanished_source_is_reported(tree, project, tmp_path):
    """A folder that is gone fails its source and nothing else."""
    project.add_source("claude-local", make_sessions(tmp_path / "c", tree))
    shutil.rmtree(tmp_path / "c")
    [report] = project.import_()
    assert "not there any more" in (report.error or "")
    assert project.sources()[0].lastSyncStatus == "failed"


def test_sessions_of_other_repositories_stay_out(tree, project, tmp_path):
    """A source of all projects gives only this repository's sessions: by folder, or by remote."""
    make_sessions(tmp_path / "c", tree, 1)
    other = make_sessions(tmp_path / "d", tmp_path / "elsewhere", 2)
    shutil.copytree(other / "slug", tmp_path / "c/projects/other")
    for file in (tmp_path / "c/projects/other").iterdir():
        file.rename(file.with_name(f"x{file.name}"))
    project.add_source("claude-local", tmp_path / "c/projects")
    [report] = project.import_()
    assert (report.imported, report.count("elsewhere")) == (1, 2)


def test_two_clones_that_import_one_session_keep_one_event(tmp_path):
    """The same session imported on two branches is one event after the merge."""
    from cairn.project.events import normalised

    tree = ready_repo(tmp_path / "repo")
    folder = make_sessions(tmp_path / "c", tree, 1)
    twins = []
    for name in ("a", "b"):
        copy = Path(shutil.copytree(tree, tmp_path / name))
        project = open_at(copy)
        project.add_source("claude-local", folder / "slug")
        project.import_()
        twins.append(project.record_.log.read().events)
    merged = normalised([*twins[0], *twins[1][1:]])
    assert merged.dropped == 1


def test_sources_are_registered_listed_and_removed(tree, project, tmp_path):
    """M18, M19: unknown places and doubles are named errors; removal keeps what was imported."""
    folder = make_sessions(tmp_path / "c", tree)
    source = project.add_source("claude-local", folder)
    with pytest.raises(Conflict, match=source.id):
        project.add_source("claude-local", folder)
    with pytest.raises(NotFound):
        project.add_source("jsonl", tmp_path / "nowhere")
    project.import_()
    project.remove_source(source.id)
    assert project.sources() == []
    with pytest.raises(NotFound, match="sources list"):
        project.import_([source.id])
    with pytest.raises(NotFound):
        project.remove_source(source.id)
    assert len([event for event in event_lines(tree) if event["kind"] == "imported_session"]) == 3


def test_sources_stay_out_of_version_control(tree, project, tmp_path):
    """Paths of one machine are ignored by git; the ledger of imports is not."""
    from tests.project_kit import git

    project.add_source("claude-local", make_sessions(tmp_path / "c", tree))
    project.import_()
    listed = git(tree, "status", "--porcelain", "-uall")
    assert ".cairn/sources.json" not in listed
    assert ".cairn/history/imports.jsonl" in listed


def test_compressed_rollouts_are_reported(tmp_path):
    """A .zst file is named as not readable instead of being passed over in silence."""
    tree = make_repo(tmp_path / "r", {"a.py": "A = 1\n"})
    project = open_at(tree)
    project.init()
    write(tmp_path / "x", {"rollout-2026-10-02T10-00-00-t2.jsonl.zst": "zz"})
    project.add_source("codex-local", tmp_path / "x")
    [report] = project.import_()
    assert "zstd -d" in (report.first_error or "")
