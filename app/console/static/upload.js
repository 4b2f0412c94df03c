// Drop a file: it is sent as it is and checked by the server while it arrives; what the server has found so far is shown at once.
"use strict";
(() => {
  const EVERY = 400, MOST = 50;
  const drop = document.getElementById("drop"), input = drop.querySelector("input[type=file]");
  const state = document.getElementById("drop-state"), bar = document.getElementById("drop-bar");
  const found = document.getElementById("found"), list = document.getElementById("found-lines"), count = document.getElementById("found-count");
  const cell = (tag, text, name) => { const node = document.createElement(tag); node.textContent = text; if (name) node.className = name; return node; };

  // The server's problems of the lines so far. Their words are text, whatever the file says.
  const show = report => {
    count.textContent = report.words;
    found.hidden = !report.problems.length;
    for (const problem of report.problems.slice(list.children.length, MOST)) {
      const row = list.insertRow(), what = cell("td", problem.words);
      what.append(cell("span", problem.code, "sub mono"));
      row.append(cell("td", problem.line, "num"), what);
    }
  };

  const watch = (to, upload) => {
    const timer = setInterval(async () => {
      const answer = await fetch(`${to}?upload=${upload}`, { headers: { accept: "application/json" } }).catch(() => null);
      if (answer?.ok) show(await answer.json());
    }, EVERY);
    return () => clearInterval(timer);
  };

  const send = file => {
    if (!file || drop.classList.contains("busy")) return;
    const upload = crypto.randomUUID(), request = new XMLHttpRequest(), to = drop.dataset.to;
    list.replaceChildren();
    found.hidden = true;
    const stop = watch(to, upload);
    const end = words => { stop(); drop.classList.remove("busy"); state.textContent = words; };
    request.open("POST", `${to}?name=${encodeURIComponent(file.name)}&upload=${upload}`);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = event => {
      const share = event.total ? event.loaded / event.total : 0;
      bar.setAttribute("width", `${100 * share}%`);
      state.textContent = `${file.name}: ${Math.round(100 * share)} % sent, each line is checked as it arrives`;
    };
    request.onload = () => { const next = request.getResponseHeader("x-next"); if (next) { stop(); location.assign(next); } else end(request.responseText.slice(0, 500)); };
    request.onerror = request.onabort = () => end("The file did not arrive whole. Drop it again.");
    document.getElementById("stop").onclick = () => request.abort();
    drop.classList.add("busy");
    request.send(file);
  };

  input.addEventListener("change", () => { send(input.files[0]); input.value = ""; });
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, event => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, event => { event.preventDefault(); drop.classList.remove("over"); });
  drop.addEventListener("drop", event => send(event.dataTransfer.files[0]));
})();
