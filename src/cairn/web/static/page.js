// The page without a script reads and writes as well; this makes it live, quick for the keyboard and local in time.

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// ---------------------------------------------------------------- times in the reader's zone

const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

function localTimes(from = document) {
  for (const one of $$("time[datetime]:not([data-local])", from)) {
    const text = one.dateTime;
    const bare = /^\d{4}-\d{2}-\d{2}$/.test(text);
    const at = new Date(bare || !text.includes("T") ? text.slice(0, 10) + "T00:00" : text);
    if (isNaN(at)) continue;
    one.title = text;
    one.textContent = ("day" in one.dataset ? day : minute).format(at);
    one.dataset.local = "";
  }
}

// The server sorts entries into days of its own zone: here each goes under the reader's day.
function localDays(box = $("#timeline")) {
  if (!box) return;
  let list = null, last = "";
  for (const section of $$(".day", box)) {
    let used = false;
    for (const line of $$(".line", section)) {
      const told = $("time[datetime*=T]", line), then = told && new Date(told.dateTime);
      const start = then && new Date(then.getFullYear(), then.getMonth(), then.getDate());
      const key = String(start);
      if (key !== last) {
        const home = used ? section.cloneNode(true) : section;
        if (used) { $(".lines", home).replaceChildren(); list.parentNode.after(home); }
        if (start) dated(home, start);
        [list, last, used] = [$(".lines", home), key, true];
      }
      if (line.parentNode !== list) list.append(line);
    }
    if (!used) section.remove();
  }
}

function dated(section, start) {
  const time = $("h2 time", section), link = $("h2 a", section), end = new Date(start);
  if (!time || start.getTime() === new Date(time.dateTime + "T00:00").getTime()) return;
  end.setDate(end.getDate() + 1);
  const to = new URL(link.href);
  to.searchParams.set("since", start.toISOString());
  to.searchParams.set("until", end.toISOString());
  link.href = to.pathname + to.search;
  time.textContent = day.format(start);
}

// ---------------------------------------------------------------- word of changes

async function fetched(url) {
  const answer = await fetch(url, { headers: { "x-cairn": "live" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

let refreshing = false;
let again = false;

// What somebody is writing is never replaced by what the server has.
const typed = (box) => $$("textarea, input:not([type=hidden])", box).some((one) => one.value !== one.defaultValue);

async function refresh() {
  const parts = $$("[data-live][id], [data-wait]");
  if (!parts.length || document.body.dataset.grown) return;
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    const news = await fetched(location.href);
    for (const old of $$("[data-live][id]")) {
      const fresh = news.getElementById(old.id);
      if (fresh) {
        localTimes(fresh);
        if (old.id === "timeline") localDays(fresh);
        const held = typed(old) || old.contains(document.activeElement);
        if (fresh.innerHTML !== old.innerHTML && !held) old.replaceWith(document.adoptNode(fresh));
      } else if (!typed(document)) location.reload();
    }
    if (!$("[data-wait]", news)) $$("[data-wait]").forEach((one) => one.remove());
  } catch { /* the stream says when the server is away */ }
  refreshing = false;
  if (again) { again = false; setTimeout(refresh, 500); }
}

function listen() {
  const away = $("#away");
  let timer, source;
  const start = (missed) => {
    source = new EventSource("/view/events");
    source.addEventListener("open", () => { if (missed || !away.hidden) { missed = false; away.hidden = true; refresh(); } });
    source.addEventListener("error", () => {
      away.hidden = false;
      if (source.readyState === EventSource.CLOSED) setTimeout(() => start(true), 2000);
    });
    source.addEventListener("changed", () => { clearTimeout(timer); timer = setTimeout(refresh, 250); });
  };
  start(false);
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  // A browser gives a host few connections: a tab that nobody looks at holds none.
  document.addEventListener("visibilitychange", () => {
    source.close();
    if (!document.hidden) start(true);
  });
  addEventListener("submit", (event) => {
    if (away.hidden) return;
    event.preventDefault();
    event.stopPropagation();
    toast("The server does not answer: nothing was sent, and what you wrote stays here.");
  }, true);
}

// ---------------------------------------------------------------- older entries as one scrolls

function grow() {
  const older = $("a.older");
  if (!older || !("IntersectionObserver" in window)) return;
  const seen = new IntersectionObserver(async (found) => {
    if (!found.some((one) => one.isIntersecting)) return;
    seen.disconnect();
    try {
      const news = await fetched(older.href);
      localTimes(news);
      document.body.dataset.grown = "1";
      $("#timeline").append(...$$("#timeline > *", news));
      localDays();
      const next = $("a.older", news);
      if (next) { older.href = next.getAttribute("href"); grow(); } else older.remove();
    } catch { /* the link is still there */ }
  }, { rootMargin: "600px" });
  seen.observe(older);
}

// ---------------------------------------------------------------- forms and a short word about them

let undoing = null;

function toast(said, undo) {
  const box = $("#toast");
  box.replaceChildren(document.createTextNode(said));
  if (undo) {
    const button = document.createElement("button");
    button.textContent = "Undo (u)";
    button.addEventListener("click", undo);
    box.append(button);
  }
  undoing = undo ?? null;
  box.hidden = false;
}

async function send(act, fields, form) {
  const data = new URLSearchParams(form ? new FormData(form) : undefined);
  for (const [name, value] of Object.entries(fields)) data.set(name, value);
  data.set("form", $("input[name=form]").value);
  const space = new URLSearchParams(location.search).get("space");
  const answer = await fetch(`/view/do/${act}` + (space ? `?space=${encodeURIComponent(space)}` : ""), {
    method: "POST", body: data, headers: { accept: "application/json" },
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.trouble ?? "It did not work.");
  return told;
}

// ---------------------------------------------------------------- review by keyboard

function inbox() {
  const box = $("#inbox");
  if (!box) return;
  const items = () => $$(".item:not(.gone)", box);
  const current = () => $(".item.current", box);
  const left = () => {
    const n = items().length;
    $("#left").textContent = `${n} wait`;
    $("#none").hidden = n > 0;
  };
  const go = (item) => {
    $$(".item.current", box).forEach((one) => one.classList.remove("current"));
    if (!item) return;
    item.classList.add("current");
    item.focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  };
  const step = (way) => {
    const all = items(), at = all.indexOf(current());
    go(all[Math.min(all.length - 1, Math.max(0, at + way))] ?? all[0]);
  };
  const act = async (item, name, form) => {
    if (!item || item.dataset.busy) return;
    item.dataset.busy = "1";
    const all = items(), next = all[all.indexOf(item) + 1] ?? all[all.indexOf(item) - 1];
    item.classList.add("gone");
    go(next);
    left();
    try {
      const told = await send(name, {}, form);
      toast(told.said, told.undo ? async () => {
        undoing = null;
        try {
          await send("restore", { target: told.undo });
          item.classList.remove("gone");
          go(item);
          toast("Taken back.");
        } catch (trouble) { toast(trouble.message); }
        left();
      } : null);
    } catch (trouble) {
      item.classList.remove("gone");
      go(item);
      left();
      toast(trouble.message);
    }
    delete item.dataset.busy;
  };
  box.addEventListener("submit", (event) => {
    event.preventDefault();
    const form = event.target;
    act(form.closest(".item"), form.dataset.act, form);
  });
  box.addEventListener("focusin", (event) => {
    const item = event.target.closest(".item");
    if (item && item !== current()) { $$(".item.current", box).forEach((one) => one.classList.remove("current")); item.classList.add("current"); }
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") { const item = event.target.closest(".item"); $("details[open]", item)?.removeAttribute("open"); go(item); }
      return;
    }
    const item = current(), form = (name) => $(`form[data-act=${name}]`, item ?? box);
    const keys = {
      j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
      y: () => item && form("keep") && act(item, "keep", form("keep")),
      n: () => item && form("refuse") && act(item, "refuse", form("refuse")),
      e: () => { const open = item && $("details.reword", item); if (open) { open.open = true; $("textarea", open).focus(); } },
      m: () => { const merge = item && $("[data-merge]", item); if (merge) location.href = merge.href; },
      u: () => undoing && undoing(),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  go(items()[0]);
}

// ---------------------------------------------------------------- keys everywhere

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) {
    if (event.key === "Escape" && event.target.id === "q") event.target.blur();
    return;
  }
  if (event.key === "/") { event.preventDefault(); $("#q")?.focus(); $("#q")?.select(); }
  const cards = $$(".cards > .card, #timeline .line");
  if (!$("#inbox") && cards.length && (event.key === "j" || event.key === "k")) {
    const links = cards.map((one) => $("a.title", one)), at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))].focus();
  }
});

localTimes();
localDays();
for (const one of $$(".wide")) one.scrollLeft = one.scrollWidth; // the newest is at the right
grow();
inbox();
if ($("nav")) listen();
