// What the console does beyond plain HTML. Every page works without it; nothing here makes markup out of text.
"use strict";
(() => {
  const SILENT = 10_000, POLL = 2_000, STALE = 6_000;
  const root = document.documentElement, live = document.getElementById("live");
  let heard = Date.now();
  root.dataset.js = "";

  // Live parts: a note when events stop, and polls in their place.
  const hear = () => { heard = Date.now(); delete root.dataset.stale; };
  if (live) {
    for (const name of ["htmx:sse:after:message", "htmx:sse:after:connection", "ping"]) live.addEventListener(name, hear);
    live.addEventListener("signed-out", () => location.reload());
    live.addEventListener("htmx:after:request", event => { if (event.detail?.ctx?.response?.status === 401) location.reload(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) heard = Date.now(); });
    setInterval(() => {
      if (document.hidden) return;
      const silent = Date.now() - heard;
      if (silent > STALE) root.dataset.stale = "";
      if (silent > SILENT && window.htmx) {
        window.htmx.ajax("GET", live.dataset.poll, { source: live, swap: "none" }).then(hear, () => {});
      }
    }, POLL);
  }

  // Keys. Where single keys are off (a choice of the reader, WCAG 2.1.4), none of these acts.
  const OFF = "off", single = document.getElementById("single-keys");
  const off = () => localStorage.getItem("sw-keys") === OFF;
  if (single) {
    single.checked = !off();
    single.addEventListener("change", () => {
      if (single.checked) localStorage.removeItem("sw-keys"); else localStorage.setItem("sw-keys", OFF);
    });
  }
  const go = key => document.querySelector(`.rail a[data-key="${CSS.escape(key)}"]`)?.click();
  const rows = () => [...document.querySelectorAll("table.rows tbody tr")];
  const here = () => document.activeElement?.closest("tr");
  const step = by => {
    const all = rows(), next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(here()) + by))];
    next?.querySelector("td:not(.pick) a, td:not(.pick) button")?.focus();
  };
  const TYPING = "input:not([type=checkbox]), textarea, select, [popover]:popover-open form";
  let waitsForPage = false;
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || off() || event.target.closest(TYPING)) return;
    const key = event.key;
    if (waitsForPage) { waitsForPage = false; go(key); return; }
    if (key === "g") waitsForPage = true;
    else if (key === "?") document.getElementById("keys")?.togglePopover();
    else if (key === "/") { event.preventDefault(); (document.getElementById("q") ?? document.getElementById("find"))?.focus(); }
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "x") here()?.querySelector(".pick input")?.click();
    else if (key === "[" || key === "]") document.querySelector(`[data-page="${key}"]`)?.click();
    else document.querySelector(`[data-shortcut="${CSS.escape(key)}"]:not(:disabled)`)?.click();
  });

  // Rows: all of the page at once, and with Shift all from the last one on.
  const picks = () => [...document.querySelectorAll("tbody .pick input")];
  let last = null;
  document.addEventListener("click", event => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || !box.closest(".pick")) return;
    const all = picks(), to = all.indexOf(box), from = all.indexOf(last);
    if ("all" in box.dataset) for (const each of all) each.checked = box.checked;
    else if (event.shiftKey && from >= 0) for (const each of all.slice(Math.min(from, to), Math.max(from, to) + 1)) each.checked = box.checked;
    if (to >= 0) last = box;
    const every = document.querySelector("[data-all]"), count = all.filter(each => each.checked).length;
    if (every) { every.checked = count === all.length; every.indeterminate = count > 0 && count < all.length; }
  });

  // Copy an id.
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard?.writeText(button.dataset.copy).then(() => { button.classList.add("did"); setTimeout(() => button.classList.remove("did"), 1200); });
  });
})();
