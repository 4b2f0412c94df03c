// Reads the plots that the server draws, by pointer and by keys, and sets the time that a page shows. Each plot brings its values
// in data-read; those of the same time are read together. What is read is drawn by SVG attributes: no style is set.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg", NEAR = 8, LEAST = 60;
  const said = document.getElementById("reading"), main = document.getElementById("main");
  const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
  let current = null, at = 0, drag = null; // the plot that is read, the moment in seconds since 1970, and where a drag began

  const readable = () => [...document.querySelectorAll(".plot[data-read]")];
  const frame = plot => [Number(plot.dataset.from), Number(plot.dataset.to)];
  const alike = plot => readable().filter(each => each.dataset.from === plot.dataset.from && each.dataset.to === plot.dataset.to);
  const parsed = new WeakMap();
  const values = plot => {
    const text = plot.dataset.read, known = parsed.get(plot);
    if (known?.text === text) return known;
    const [seconds, lines] = JSON.parse(text), found = { text, seconds, lines };
    parsed.set(plot, found);
    return found;
  };
  const nearest = (seconds, wanted) => seconds.reduce((best, each, n) => Math.abs(each - wanted) < Math.abs(seconds[best] - wanted) ? n : best, 0);
  const add = (to, name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    to.append(node);
    return node;
  };
  const clock = moment => {
    const [from, to] = frame(current), when = new Date(moment * 1000).toISOString();
    return (to - from > 86_400 ? `${when.slice(5, 10)} ` : "") + when.slice(11, to - from > 21_600 ? 16 : 19);
  };
  const words = (plot, index) => values(plot).lines.filter(line => line[3][index] !== null)
    .map(([name, unit, colour, all]) => [`${name} ${number.format(all[index])}${unit ? "\u00a0" + unit : ""}`, colour]);

  // The cross-hair of all plots of this time, each with its values; the time stands at the one that is read.
  const draw = () => {
    for (const old of document.querySelectorAll(".plot > .read")) old.remove();
    if (current && !(current.isConnected && current.dataset.read)) current = null;
    if (current) {
      const [from, to] = frame(current);
      at = Math.min(to, Math.max(from, at)); // a live plot moves on under what is read
      const x = 100 * (at - from) / (to - from);
      for (const plot of alike(current)) {
        const { seconds } = values(plot);
        if (!seconds.length) continue;
        const mark = add(plot, "g", { class: "read", "aria-hidden": "true" });
        if (drag && plot === current) add(mark, "rect", { x: `${Math.min(x, drag.x)}%`, width: `${Math.abs(x - drag.x)}%`, height: "100%" });
        add(mark, "line", { class: "cross", x1: `${x}%`, x2: `${x}%`, y1: 0, y2: "100%" });
        const text = add(mark, "text", { class: "halo", x: `${x}%`, y: 11, dx: x > 50 ? -7 : 7, "text-anchor": x > 50 ? "end" : "start" });
        if (plot === current) add(text, "tspan", { class: "k" }, `${clock(at)}  `);
        words(plot, nearest(seconds, at - from)).forEach(([each, colour], n) => add(text, "tspan", { class: colour || "k" }, (n ? "  " : "") + each));
      }
    }
    watch.takeRecords();
  };
  const read = (plot, moment) => {
    const [from] = frame(plot), { seconds } = values(plot);
    if (!seconds.length) return;
    current = plot;
    at = from + seconds[nearest(seconds, moment - from)];
    draw();
  };
  const stop = () => { current = drag = null; draw(); };

  // The time is in the address, so it can be sent to others. Without a part of the past the page ends now and stays live.
  const iso = seconds => new Date(seconds * 1000).toISOString().slice(0, 19) + "Z";
  const show = (from, to) => {
    const address = new URL(location.href), now = Date.now() / 1000;
    for (const name of ["range", "before", "did"]) address.searchParams.delete(name);
    address.searchParams.set("from", iso(from));
    address.searchParams.set("to", iso(Math.min(to, now)));
    location.assign(address);
  };
  const zoom = (plot, closer) => {
    const [from, to] = frame(plot), whole = to - from, length = Math.max(LEAST, closer ? whole / 2 : whole * 2);
    const presets = [...document.querySelectorAll(".seg a")], here = presets.findIndex(each => each.ariaCurrent);
    const live = !new URL(location.href).searchParams.has("from"), end = live && (!closer || at >= from + whole * 0.75);
    const preset = end && presets[here + (closer ? -1 : 1)];
    const middle = closer ? Math.min(to - length / 2, Math.max(from + length / 2, at)) : (from + to) / 2;
    if (preset) preset.click();
    else if (!end || closer) show(middle - length / 2, middle + length / 2);
  };

  document.addEventListener("keydown", event => {
    const plot = event.target;
    if (!(plot instanceof SVGElement) || !plot.dataset.read || event.ctrlKey || event.metaKey || event.altKey) return;
    const { seconds } = values(plot), [from, to] = frame(plot), last = seconds.length - 1;
    const index = current === plot ? nearest(seconds, at - from) : last + 1, far = event.shiftKey ? 10 : 1;
    const next = { ArrowLeft: index - far, ArrowRight: index + far, Home: 0, End: last }[event.key];
    if (next !== undefined && last >= 0) {
      read(plot, from + seconds[Math.min(last, Math.max(0, next))]);
      said.textContent = [clock(at), ...words(plot, nearest(seconds, at - from)).map(([each]) => each)].join(", ");
    } else if ("zooms" in plot.dataset && "+=-".includes(event.key)) {
      if (current !== plot) [current, at] = [plot, to];
      zoom(plot, event.key !== "-");
    } else if (event.key === "Escape" && current) stop();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);

  const moment = (plot, event) => {
    const box = plot.getBoundingClientRect(), [from, to] = frame(plot);
    return from + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (to - from);
  };
  main.addEventListener("pointerdown", event => {
    const plot = event.target.closest(".plot[data-zooms]");
    if (!plot || event.button || event.pointerType === "touch") return;
    const [from, to] = frame(plot), begin = moment(plot, event);
    drag = { plot, begin, left: event.clientX, x: 100 * (begin - from) / (to - from) };
    plot.setPointerCapture(event.pointerId);
    event.preventDefault();
    plot.focus({ preventScroll: true });
  });
  main.addEventListener("pointermove", event => {
    const plot = drag?.plot ?? event.target.closest(".plot[data-read]");
    if (plot) read(plot, moment(plot, event));
    else if (current && current !== document.activeElement) stop();
  });
  main.addEventListener("pointerup", event => {
    if (!drag) return;
    const { plot, begin, left } = drag, end = moment(plot, event);
    drag = null;
    if (Math.abs(event.clientX - left) > NEAR) show(Math.min(begin, end), Math.max(begin, end, Math.min(begin, end) + LEAST));
    draw();
  });
  main.addEventListener("pointercancel", stop);
  main.addEventListener("pointerleave", () => { if (current && !drag && current !== document.activeElement) stop(); });
  main.addEventListener("focusout", event => { if (event.target === current) stop(); });

  // Keys are for the plot here, so a screen reader has to leave them to it. A live part comes without that; then it is said again.
  // The server writes tabindex: taken away for a moment, it would cost the focus.
  const prepare = () => {
    for (const plot of readable()) {
      if (plot.getAttribute("role") !== "application") plot.setAttribute("role", "application");
      plot.setAttribute("aria-roledescription", "plot");
      plot.setAttribute("aria-describedby", "plot-keys");
    }
    draw();
  };
  const watch = new MutationObserver(prepare);
  prepare();
  watch.observe(main, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-read", "role"] });
})();
