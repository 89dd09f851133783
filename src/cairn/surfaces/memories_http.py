"""The HTTP routes of governed memories: remember, look, correct, forget, and keeping as a whole.

Each handler says whose memory it is about and what it does to it; `cairn.rights` decides.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from cairn.governed.core import core_scope
from cairn.governed.memories import verdict_json
from cairn.surfaces import kept, views
from cairn.surfaces.guard import Refusal
from cairn.surfaces.project_http import allowed_folder
from cairn.surfaces.routes import Call, Endpoint
from cairn.types import Scope, Space

if TYPE_CHECKING:
    from cairn.surfaces import schemas, schemas_kept

REMEMBER_MORE = (
    "confidence", "status", "tier", "source_id", "source_session_id", "source_run_id", "agent_id",
    "file_scope_pattern", "trigger", "procedure",
)  # fmt: skip


def _space(at: schemas.SpaceQuery | schemas.Spaced) -> Space:
    return Space(at.app_id, at.project_id)


def _place(at: schemas_kept.Placed) -> dict[str, Any]:
    return {"scope": at.scope, "owner": at.owner, "app_id": at.app_id, "project_id": at.project_id}


async def remember(call: Call) -> Any:
    body = cast("schemas_kept.RememberRequest", call.body)
    scope = call.memory.parts.keeper.scope_of(_space(body), body.scope, body.owner, agent_id=body.agent_id)
    call.grant.may_remember(scope, mode=body.mode, status=body.status, pinned=body.pinned)
    if body.agent_id is not None:
        call.grant.reach_owners(scope.space, [body.agent_id], write=True)
    more = {name: value for name in REMEMBER_MORE if (value := getattr(body, name)) is not None}
    verdict = await call.memory.remember(
        body.content,
        body.category,
        body.scope,
        body.owner,
        body.app_id,
        body.project_id,
        mode=body.mode,
        importance=body.importance,
        pinned=body.pinned,
        origin=body.origin,
        vouched=call.grant.promote,
        **more,
    )
    return verdict_json(verdict)


async def list_(call: Call) -> Any:
    query = cast("schemas_kept.MemoriesQuery", call.query)
    if query.scope is None:
        call.grant.reach_space(_space(query))
    else:
        call.grant.reach_scope(call.memory.parts.keeper.scope_of(_space(query), query.scope, query.owner))
    page = await call.memory.memories.list(
        **_place(query),
        status=query.status,
        category=query.category,
        pinned=query.pinned,
        archived=query.archived,
        skills=query.skills,
        offset=query.offset,
        limit=query.limit,
    )
    return {"memories": list(page.memories), "total": page.total}


async def search(call: Call) -> Any:
    body = cast("schemas_kept.MemorySearchRequest", call.body)
    call.grant.reach_scope(call.memory.parts.keeper.scope_of(_space(body), body.scope, body.owner))
    limit = call.memory.settings.server.max_query_chars
    if len(body.query) > limit:
        raise Refusal(
            422, "INVALID_INPUT", f"query has {len(body.query)} characters; at most {limit} are searched."
        )
    result = await call.memory.memories.search(
        body.query,
        scope=body.scope,
        owner=body.owner,
        app_id=body.app_id,
        project_id=body.project_id,
        method=body.method,
        top_k=body.top_k,
        min_score=body.min_score,
        token_budget=body.token_budget,
        explain=body.explain,
        for_injection=body.for_injection,
        archived=body.archived,
        consistency=body.consistency,
    )
    zone = call.memory.settings.zone
    data: dict[str, Any] = {
        "memories": [views.memory(hit, zone) for hit in result.memories],
        "freshness": views.freshness(result.freshness),
    }
    if body.for_injection:
        data["prompt"] = kept.prompt(result, budget=body.token_budget, zone=zone)
    return data


# ---------------------------------------------------------------- one memory


async def _reached(call: Call, *, write: bool) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The id and place a call names, and the memory's row, if the caller's token reaches it."""
    at = cast("schemas_kept.Placed", call.query)
    space, place, memory_id = _space(at), _place(at), call.params["id"]
    # The id says whose it is: a token learns nothing about what lies beyond it, not even that it is there.
    if owner := at.owner or "_".join(memory_id.split("_")[:-3]):
        call.grant.reach_owners(space, [owner], write=write)
    elif call.grant.owners is not None or at.scope == "project":
        call.grant.reach_scope(Scope(space, "project", ""), write=write)
        place["scope"] = "project"
    row = await call.memory.memories.show(memory_id, **place)
    call.grant.reach_scope(Scope(space, row["scope"], row["scope_owner_id"]), write=write)
    return memory_id, place, row


async def show(call: Call) -> Any:
    return (await _reached(call, write=False))[2]


async def edit(call: Call) -> Any:
    memory_id, place, row = await _reached(call, write=True)
    call.grant.may_reword(row)
    changes = cast("schemas_kept.EditRequest", call.body).model_dump(exclude_unset=True, exclude_none=True)
    return await call.memory.memories.edit(memory_id, **place, **changes)


async def supersede(call: Call) -> Any:
    memory_id, place, row = await _reached(call, write=True)
    call.grant.may_reword(row)
    fields = cast("schemas_kept.SupersedeRequest", call.body).model_dump(
        exclude_unset=True, exclude_none=True
    )
    fields["vouched"] = call.grant.promote
    return verdict_json(await call.memory.memories.supersede(memory_id, **place, **fields))


async def pin(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=True)
    call.grant.may_pin("pin")
    return await call.memory.memories.pin(memory_id, **place)


async def unpin(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=True)
    call.grant.may_pin("unpin")
    return await call.memory.memories.unpin(memory_id, **place)


async def archive(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=True)
    reason = cast("schemas_kept.ReasonQuery", call.query).reason
    return await call.memory.memories.archive(memory_id, reason=reason, **place)


async def restore(call: Call) -> Any:
    memory_id, place, row = await _reached(call, write=True)
    call.grant.may_restore(row)
    return await call.memory.memories.restore(memory_id, **place)


async def promote(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=True)
    call.grant.may_promote("promote")
    return await call.memory.memories.promote(memory_id, **place)


async def forget(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=True)
    query = cast("schemas_kept.ForgetQuery", call.query)
    # The receipt tells whether others hold the same words, too: not for a token that is limited to owners.
    call.grant.reach_space(Space(place["app_id"], place["project_id"]), write=True)
    receipt = await call.memory.memories.forget(
        memory_id, similar=query.similar, all_owners=query.all_owners, dry_run=query.dry_run, **place
    )
    return kept.receipt(receipt)


async def forget_words(call: Call) -> Any:
    body = cast("schemas_kept.ForgetRequest", call.body)
    call.grant.reach_space(Space(body.app_id, body.project_id), write=True)
    receipt = await call.memory.memories.forget(
        body.id,
        words=body.words,
        also=body.also,
        similar=body.similar,
        all_owners=body.all_owners,
        dry_run=body.dry_run,
        scope=body.scope,
        owner=body.owner,
        app_id=body.app_id,
        project_id=body.project_id,
    )
    return kept.receipt(receipt)


async def history(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=False)
    return {"history": kept.history(await call.memory.memories.history(memory_id, **place))}


async def why(call: Call) -> Any:
    memory_id, place, _ = await _reached(call, write=False)
    return {"why": list(await call.memory.memories.why(memory_id, **place))}


# ---------------------------------------------------------------- keeping as a whole


async def sweep(call: Call) -> Any:
    body = cast("schemas_kept.SweepRequest", call.body)
    call.grant.reach_space(_space(body), write=not body.dry_run)
    return kept.sweep(await call.memory.memories.sweep(**body.model_dump()))


async def consolidate(call: Call) -> Any:
    body = cast("schemas_kept.ConsolidateRequest", call.body)
    call.grant.reach_space(_space(body), write=not body.dry_run)
    if not body.dry_run:
        call.grant.may_promote("consolidate")  # what it merges is promoted
    if body.undo is not None:
        space = {"app_id": body.app_id, "project_id": body.project_id}
        call.grant.reach_space(_space(body), write=True)
        restored = await call.memory.memories.undo_consolidation(body.undo, **space)
        return {"run_id": body.undo, "dry_run": False, "merged": [], "restored": restored}
    return kept.consolidation(await call.memory.memories.consolidate(**body.model_dump(exclude={"undo"})))


async def end_mission(call: Call) -> Any:
    body = cast("schemas_kept.MissionEndRequest", call.body)
    call.grant.reach_space(_space(body), write=True)
    return asdict(await call.memory.memories.end_mission(call.params["run"], **body.model_dump()))


async def core(call: Call) -> Any:
    at = cast("schemas_kept.CoreQuery", call.query)
    call.grant.reach_scope(core_scope(_space(at), at.agent))
    return await call.memory.memories.core(**at.model_dump())


async def set_core(call: Call) -> Any:
    at = cast("schemas_kept.CoreQuery", call.query)
    call.grant.reach_scope(core_scope(_space(at), at.agent), write=True)
    if not at.agent:
        call.grant.may_promote(
            "core memory of the project"
        )  # what stands there is before every agent at once
    fields = cast("schemas_kept.CoreRequest", call.body).model_dump(exclude_unset=True, exclude_none=True)
    return await call.memory.memories.set_core(**at.model_dump(), **fields)


async def skills(call: Call) -> Any:
    at = cast("schemas.SpaceQuery", call.query)
    call.grant.reach_space(_space(at))
    return {"skills": [dict(row) for row in await call.memory.memories.skills(**at.model_dump())]}


async def scan_skills(call: Call) -> Any:
    body = cast("schemas_kept.ScanRequest", call.body)
    call.grant.reach_space(_space(body), write=True)
    call.grant.may_promote("skills/scan")  # a skill file is a person's word
    folders = [str(allowed_folder(call, folder)) for folder in body.folders]
    report = await call.memory.memories.scan_skills(folders, app_id=body.app_id, project_id=body.project_id)
    return kept.scan(report)


async def import_skill(call: Call) -> Any:
    body = cast("schemas_kept.SkillImportRequest", call.body)
    call.grant.reach_space(_space(body), write=True)
    call.grant.may_promote("skills/import")
    report = await call.memory.memories.import_skill(
        f"{body.name}/SKILL.md", text=body.text, app_id=body.app_id, project_id=body.project_id
    )
    return kept.scan(report)


async def import_memories(call: Call) -> Any:
    body = cast("schemas_kept.ImportRequest", call.body)
    # An export may hold memories of every scope, whoever it is said to be about.
    call.grant.reach_space(_space(body), write=True)
    if body.trust:
        call.grant.may_promote("trust")
    report = await call.memory.memories.import_from(**body.model_dump())
    return kept.imported(report)


async def refresh(call: Call) -> Any:
    body = cast("schemas.Spaced", call.body)
    call.grant.reach_space(_space(body), write=True)
    return kept.pages(await call.memory.memories.refresh(**body.model_dump()))


_ROW, _PLACED = "MemoryRow", "Placed"

ENDPOINTS: list[Endpoint] = [
    Endpoint("POST", "/memories", remember, "Remember one fact; the verdict says kept, merged or refused",
             "RememberRequest", "VerdictData"),
    Endpoint("GET", "/memories", list_, "List memories, newest change first", None, "MemoriesData",
             query="MemoriesQuery"),
    Endpoint("POST", "/memories/search", search, "Find memories of one scope, the project's by default",
             "MemorySearchRequest", "MemorySearchData"),
    Endpoint("POST", "/memories/import", import_memories, "Take in another program's export through the gate",
             "ImportRequest", "ImportData"),
    Endpoint("POST", "/memories/sweep", sweep, "Decay, demote, promote and archive what is due",
             "SweepRequest", "SweepData"),
    Endpoint("POST", "/memories/consolidate", consolidate, "Merge memories that say nearly the same, or undo a run",
             "ConsolidateRequest", "ConsolidateData"),
    Endpoint("GET", "/memories/{id}", show, "One memory", None, _ROW, query=_PLACED),
    Endpoint("PATCH", "/memories/{id}", edit, "Change fields of a memory", "EditRequest", _ROW, query=_PLACED),
    Endpoint("DELETE", "/memories/{id}", forget, "Forget a memory and what was made from it; there is no undo",
             None, "ReceiptData", query="ForgetQuery"),
    Endpoint("POST", "/memories/forget", forget_words, "Forget a memory, words, or things that are alike; there is no undo",
             "ForgetRequest", "ReceiptData"),
    Endpoint("POST", "/memories/{id}/supersede", supersede, "Replace a memory; the old one stays readable",
             "SupersedeRequest", "VerdictData", query=_PLACED),
    Endpoint("POST", "/memories/{id}/pin", pin, "Keep a memory at hand", None, _ROW, query=_PLACED),
    Endpoint("POST", "/memories/{id}/unpin", unpin, "Let a pinned memory age again", None, _ROW, query=_PLACED),
    Endpoint("POST", "/memories/{id}/archive", archive, "Put a memory away", None, _ROW, query="ReasonQuery"),
    Endpoint("POST", "/memories/{id}/restore", restore, "Bring an archived memory back", None, _ROW, query=_PLACED),
    Endpoint("POST", "/memories/{id}/promote", promote, "Vouch for a candidate", None, _ROW, query=_PLACED),
    Endpoint("GET", "/memories/{id}/history", history, "What happened to a memory", None, "HistoryData",
             query=_PLACED),
    Endpoint("GET", "/memories/{id}/why", why, "Why a memory is kept as it is", None, "WhyData", query=_PLACED),
    Endpoint("POST", "/missions/{run}/end", end_mission, "End a run: what it learned goes to the project",
             "MissionEndRequest", "MissionEndData"),
    Endpoint("GET", "/core", core, "The core memory of the project or an agent", None, "CoreData",
             query="CoreQuery"),
    Endpoint("PUT", "/core", set_core, "Set fields of the core memory", "CoreRequest", "CoreData",
             query="CoreQuery"),
    Endpoint("GET", "/skills", skills, "The skill files that are known", None, "SkillsData",
             query="SpaceQuery"),
    Endpoint("POST", "/skills/scan", scan_skills, "Take in new and changed skill files", "ScanRequest", "ScanData"),
    Endpoint("POST", "/skills/import", import_skill, "Take one SKILL.md in as a procedure", "SkillImportRequest",
             "ScanData"),
    Endpoint("POST", "/refresh", refresh, "Make the pages agents read anew", "RefreshRequest", "PagesData"),
]  # fmt: skip
