"""Heads of notes that are more than plain lines: through YAML, with anchors, aliases, tags and deep nesting refused.

The library takes longer to load than most commands take to answer, so `frontmatter` asks for this only where such a head is
read, or one is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from cairn.types import Problem

MAX_DEPTH = 16


class _Loader(yaml.CSafeLoader):
    """YAML without timestamps (dates stay text) that notes doubled keys instead of keeping the last."""

    doubled: list[tuple[str, int]]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: ARG002 - the library's signature
        seen: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            key = key if isinstance(key, str) else str(key)
            if key in seen:
                self.doubled.append((key, key_node.start_mark.line))
                continue
            seen[key] = self.construct_object(value_node, deep=True)
        return seen


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read(text: str) -> tuple[dict[str, Any], list[Problem]]:
    """The keys of a head, and what is wrong with it; {} where it cannot be read at all."""
    try:
        refused = _refused(text)
        if refused is not None:
            return {}, [refused]
        loader = _Loader(text)
        loader.doubled = []
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark is not None else 1
        return {}, [Problem("frontmatter-yaml", line, f"The frontmatter is not YAML: {error.problem}.")]
    except Exception as error:  # a scalar no Python value can hold: the library lets many errors out
        return {}, [
            Problem("frontmatter-yaml", 1, f"The frontmatter is not YAML: {type(error).__name__}: {error}.")
        ]
    problems = [
        Problem("frontmatter-doubled-key", line + 2, f'"{key[:60]}" is set twice; the first value counts.')
        for key, line in loader.doubled
    ]
    if value is None:
        return {}, problems
    if not isinstance(value, dict):
        return {}, [Problem("frontmatter-shape", 1, "The frontmatter must be keys with values.")]
    return value, problems


def _refused(text: str) -> Problem | None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return Problem("frontmatter-anchor", line, "Anchors and aliases are refused in frontmatter.")
        tag = getattr(event, "tag", None)
        if tag and tag != "!":
            return Problem("frontmatter-tag", line, f'The tag "{tag[:60]}" is refused in frontmatter.')
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return Problem("frontmatter-depth", line, f"The frontmatter nests deeper than {MAX_DEPTH}.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def write(values: Mapping[str, Any]) -> str:
    """YAML lines for `values`, in their order; raises `ValueError`, `TypeError` or `RecursionError` where YAML cannot carry one."""
    try:
        text = yaml.dump(
            values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
        )
        text.encode("utf-8")
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    return str(text)


class _Dumper(yaml.CSafeDumper):
    """Plain YAML without anchors, so that what we write we also accept."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True
