"""The plugin for Claude Code and Codex: whole, of this version, and made of commands that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from cairn.agents.hosts import read_event
from cairn.agents.tools import TOOLS
from cairn.surfaces.cli import build_parser
from cairn.version import VERSION

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "plugins" / "cairn"
SKILLS = sorted(path.parent.name for path in PLUGIN.glob("skills/*/SKILL.md"))


def read(name: str) -> dict:
    return json.loads((PLUGIN / name).read_text())


def test_the_marketplace_leads_to_the_plugin_of_this_version() -> None:
    """A set version pins users until it changes, so it follows the package."""
    market = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    (entry,) = market["plugins"]
    assert (ROOT / entry["source"]).resolve() == PLUGIN
    manifest = read(".claude-plugin/plugin.json")
    assert manifest["name"] == entry["name"] and manifest["version"] == VERSION


def test_hooks_and_server_are_one_command_on_the_path() -> None:
    """Both hosts take shell strings without arguments; Codex expands no placeholder, and knows no other key."""
    hooks = read("hooks/hooks.json")
    assert set(hooks) == {"description", "hooks"}
    for name, groups in hooks["hooks"].items():
        assert read_event({"hook_event_name": name}) is not None, f"{name} is no moment we act on"
        for group in groups:
            for handler in group["hooks"]:
                assert set(handler) == {"type", "command", "timeout"} and handler["command"] == "cairn hook"
    assert read(".mcp.json") == {"mcpServers": {"cairn": {"command": "cairn", "args": ["mcp"]}}}


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_is_portable_and_names_what_exists(name: str) -> None:
    """Only the keys every host knows; each command parses, each tool is one of ours."""
    text = (PLUGIN / "skills" / name / "SKILL.md").read_text()
    _, head, body = text.split("---\n", 2)
    fields = yaml.safe_load(head)
    known = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert set(fields) <= known and fields["name"] == name
    assert len(fields["description"]) <= 1024 and fields["metadata"]["version"] == VERSION
    spans = re.findall(r"`([^`]+)`", body)
    commands = [" ".join(span.split()) for span in spans if span.startswith("cairn ")]
    parser = build_parser()
    for command in commands:
        parser.parse_args(shlex.split(command)[1:])
    tools = re.findall(r"(?:tool|call) `(\w+)`", body)
    assert set(tools) <= set(TOOLS)


def test_there_are_three_skills() -> None:
    assert SKILLS == ["recall", "remember", "review"]
