// Live events: one row each, the newest first. Everything is inserted as text, never as markup. The address keeps the cursor.
"use strict";
(() => {
  const MOST = 200;
  const place = document.querySelector("[data-stream]");
  if (!place) return;
  const table = place.querySelector("[data-live-table]");
  const rows = table.tBodies[0];
  const none = place.querySelector("[data-live-none]");
  const state = place.querySelector("[data-live-state]");
  const pause = place.querySelector("[data-live-pause]");
  const one = place.dataset.one === "1";
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false });
  let held = [];
  let cursor = "";
  let kept = 0;

  function cell(row, text, name) {
    const made = row.insertCell();
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  function show(event) {
    const row = rows.insertRow(0);
    row.className = "fresh";
    cell(row, event.time ? clock.format(new Date(event.time)) : "");
    const kind = document.createElement("code");
    kind.textContent = event.kind;
    cell(row, "").append(kind);
    if (!one) {
      const link = document.createElement("a");
      link.className = "mono";
      link.href = `${document.body.dataset.root}/events?session=${encodeURIComponent(event.session)}`;
      link.textContent = event.session.slice(0, 12);
      cell(row, "").append(link);
    }
    cell(row, event.sequence, "n");
    const text = JSON.stringify(event.payload);
    const more = document.createElement("details");
    const head = document.createElement("summary");
    head.className = "mono";
    head.textContent = text.slice(0, 110);
    more.append(head);
    more.addEventListener("toggle", () => {
      if (more.querySelector("pre")) return;
      const whole = document.createElement("pre");
      whole.className = "code";
      whole.textContent = JSON.stringify(event.payload, null, 2).slice(0, 20000);
      more.append(whole);
    });
    cell(row, "", "body").append(more);
    while (rows.rows.length > MOST) rows.deleteRow(-1);
    table.hidden = false;
    none.hidden = true;
  }

  function keep() {
    kept = 0;
    const address = new URL(location.href);
    address.searchParams.set("cursor", cursor);
    history.replaceState(null, "", address);
  }

  function take(message) {
    let event;
    try { event = JSON.parse(message.data); } catch { return; }
    event.session ??= "";
    event.payload ??= event;
    if (message.lastEventId && one) {
      cursor = message.lastEventId;
      kept ||= setTimeout(keep, 1000);
    }
    if (pause.getAttribute("aria-pressed") === "true") {
      held.push(event);
      if (held.length > MOST) held.shift();
      pause.textContent = `Resume (${held.length})`;
    } else show(event);
  }

  const source = new EventSource(place.dataset.stream);
  for (const kind of [...place.dataset.known.split(","), "stream.reset", "unknown"]) source.addEventListener(kind, take);
  const stands = (word, name) => { state.textContent = word; state.className = `state ${name}`; };
  source.onopen = () => stands("connected", "good");
  source.onerror = () => stands(source.readyState === EventSource.CLOSED ? "closed" : "reconnecting", "warn");

  pause.addEventListener("click", () => {
    const on = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(on));
    pause.textContent = on ? "Resume" : "Pause";
    if (!on) { held.forEach(show); held = []; }
  });
  place.querySelector("[data-live-clear]").addEventListener("click", () => { rows.replaceChildren(); held = []; table.hidden = true; none.hidden = false; });
})();
