// What the console does beyond plain HTML. Every page works without it; nothing here makes markup out of text.
"use strict";
(() => {
  const SILENT = 10_000, POLL = 2_000, STALE = 6_000;
  const live = document.getElementById("live");
  let heard = Date.now();

  // Live parts: a note when events stop, and polls in their place.
  const hear = () => { heard = Date.now(); delete document.documentElement.dataset.stale; };
  if (live) {
    for (const name of ["htmx:sse:after:message", "htmx:sse:after:connection", "ping"]) live.addEventListener(name, hear);
    live.addEventListener("signed-out", () => location.reload());
    live.addEventListener("htmx:after:request", event => { if (event.detail?.ctx?.response?.status === 401) location.reload(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) heard = Date.now(); });
    setInterval(() => {
      if (document.hidden) return;
      const silent = Date.now() - heard;
      if (silent > STALE) document.documentElement.dataset.stale = "";
      if (silent > SILENT && window.htmx) {
        window.htmx.ajax("GET", live.dataset.poll, { source: live, swap: "none" }).then(hear, () => {});
      }
    }, POLL);
  }

  // Keys. Where single keys are off (a choice of the reader), only Escape and Enter act.
  const go = key => document.querySelector(`.rail a[data-key="${CSS.escape(key)}"]`)?.click();
  const rows = () => [...document.querySelectorAll("table.rows tbody tr")];
  const step = by => {
    const all = rows(), at = all.indexOf(document.activeElement?.closest("tr"));
    const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
    next?.querySelector("a, button")?.focus();
  };
  let waitsForPage = false;
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [popover]:popover-open form")) return;
    if (localStorage.getItem("sw-keys") === "off") return;
    const key = event.key;
    if (waitsForPage) { waitsForPage = false; go(key); return; }
    if (key === "g") waitsForPage = true;
    else if (key === "/") { event.preventDefault(); (document.getElementById("q") ?? document.getElementById("find"))?.focus(); }
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "[" || key === "]") document.querySelector(`[data-page="${key}"]`)?.click();
    else document.querySelector(`[data-shortcut="${CSS.escape(key)}"]:not(:disabled)`)?.click();
  });

  // Copy an id.
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard?.writeText(button.dataset.copy).then(() => { button.classList.add("did"); setTimeout(() => button.classList.remove("did"), 1200); });
  });

  // One cross-hair through all plots of a group.
  for (const group of document.querySelectorAll(".tide, .panels, .run")) {
    group.addEventListener("pointermove", event => {
      const plots = [...group.querySelectorAll(".plot, .ribbon, .lane")];
      if (!plots.length) return;
      const box = plots[0].getBoundingClientRect(), x = (event.clientX - box.left) / box.width * 100;
      for (const plot of plots) {
        let line = plot.querySelector(":scope > .cross");
        if (x < 0 || x > 100) { line?.remove(); continue; }
        if (!line) { line = document.createElementNS("http://www.w3.org/2000/svg", "line"); line.classList.add("cross"); line.setAttribute("y2", "100%"); plot.append(line); }
        line.setAttribute("x1", `${x}%`); line.setAttribute("x2", `${x}%`);
      }
    });
    group.addEventListener("pointerleave", () => group.querySelectorAll(".cross").forEach(line => line.remove()));
  }

  // Drop a file: it is sent as it is, and checked there while it arrives.
  const drop = document.getElementById("drop");
  if (drop) {
    const input = drop.querySelector("input[type=file]"), say = document.getElementById("drop-state"), bar = document.getElementById("drop-bar");
    const send = file => {
      if (!file) return;
      const request = new XMLHttpRequest();
      request.open("POST", drop.dataset.to + "?name=" + encodeURIComponent(file.name));
      request.setRequestHeader("content-type", "application/octet-stream");
      request.upload.onprogress = event => { const share = event.total ? event.loaded / event.total : 0; bar.setAttribute("width", `${100 * share}%`); say.textContent = `${file.name}: ${Math.round(100 * share)} % sent, each line is checked as it arrives`; };
      request.onload = () => { const found = request.getResponseHeader("x-next"); if (found) location.assign(found); else say.textContent = request.responseText.slice(0, 500); };
      request.onerror = () => { say.textContent = "The file did not arrive. Try again."; };
      drop.classList.add("busy");
      request.send(file);
    };
    input.addEventListener("change", () => send(input.files[0]));
    for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, event => { event.preventDefault(); drop.classList.add("over"); });
    for (const name of ["dragleave", "drop"]) drop.addEventListener(name, event => { event.preventDefault(); drop.classList.remove("over"); });
    drop.addEventListener("drop", event => send(event.dataTransfer.files[0]));
  }
})();
