// A run in progress. The server renders every entry; this puts them in place and adds text as it streams.
//
// The stream only says that something happened. What happened is fetched after the mark of the last response, so that a lost connection,
// a hidden tab or a restarted server loses nothing and shows nothing twice.
"use strict";
(() => {
  const SLOW = 4000, QUICK = 120, MOST_OF_ARGUMENT = 2000;
  const NEWS = ["stream.reset", "stream.failed"];

  class Run {
    constructor(root, kinds) {
      this.root = root;
      this.kinds = kinds;
      this.session = root.dataset.session;
      this.cursor = root.dataset.cursor;
      this.busy = this.again = false;
      this.timer = 0;
      this.open();
      this.slow = setInterval(() => this.poll(), SLOW);
      document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.back()));
    }

    part(name, root = this.root) { return root.querySelector(`[data-part="${name}"]`); }

    // ---- the stream

    open() {
      if (this.source || document.hidden) return;
      const query = new URLSearchParams({ session: this.session, cursor: this.cursor });
      this.source = new EventSource(`${document.body.dataset.root}/stream?${query}`);
      for (const kind of [...this.kinds, ...NEWS]) this.source.addEventListener(kind, (event) => this.take(kind, event));
      this.source.onerror = () => {
        // The browser reconnects by itself unless the server refused; then we reconnect from where we are.
        if (this.source?.readyState === EventSource.CLOSED) this.close();
      };
    }

    close() { this.source?.close(); this.source = null; }

    back() { this.refresh(); this.open(); }

    // Works without a stream too: for a run of another process, or while the server cannot be reached.
    poll() {
      if (document.hidden || !this.root.isConnected) return;
      if (!this.source) this.open();
      this.refresh();
    }

    take(kind, event) {
      if (event.lastEventId) this.cursor = event.lastEventId;
      const said = JSON.parse(event.data);
      if (kind === "piece.text") this.words("text", said);
      else if (kind === "piece.reasoning") this.words("reasoning", said);
      else if (kind === "piece.arguments") this.arguments(said);
      else if (kind === "piece.progress") this.progress(said);
      else this.soon();
    }

    words(name, said) {
      const live = this.part("live");
      if (!live || !after(said.sequence, live.dataset.place)) return;
      const place = live.querySelector(`[data-live="${name}"]`);
      const low = atBottom();
      place.hidden = false;
      place.append(said.payload.text);
      live.dataset.place = said.sequence;
      if (name === "text") this.speak(said.payload.text);
      if (low) toBottom();
    }

    // A call that the model is writing: the end of each of its arguments.
    arguments(said) {
      const live = this.part("live"), { call, tool, name, text } = said.payload;
      if (!live || !after(said.sequence, live.dataset.place)) return;
      const low = atBottom();
      const card = live.querySelector(`[data-live-call="${Number(call)}"]`) ?? this.writing(live, call);
      card.querySelector("h3").textContent = tool;
      const values = card.querySelector("dl");
      let value = values.querySelector(`pre[data-of="${CSS.escape(name)}"]`);
      if (!value) {
        const term = document.createElement("dt"), place = document.createElement("dd");
        value = document.createElement("pre");
        term.textContent = name;
        value.className = "code";
        value.dataset.of = name;
        place.append(value);
        values.append(term, place);
      }
      value.textContent = (value.textContent + text).slice(-MOST_OF_ARGUMENT);
      value.scrollTop = value.scrollHeight;
      live.dataset.place = said.sequence;
      if (low) toBottom();
    }

    writing(live, call) {
      const card = this.root.querySelector("[data-writing]").firstElementChild.cloneNode(true);
      card.dataset.liveCall = call;
      live.querySelector('[data-live="calls"]').append(card);
      return card;
    }

    progress(said) {
      const place = this.root.querySelector(`[data-progress="${CSS.escape(said.payload.call_id)}"]`);
      if (!place) return this.soon();
      place.hidden = false;
      const lines = `${place.textContent}${place.textContent ? "\n" : ""}${said.payload.text}`.split("\n").slice(-24);
      place.textContent = lines.join("\n");
      place.scrollTop = place.scrollHeight;
    }

    // ---- the entries

    soon() {
      if (!this.timer) this.timer = setTimeout(() => { this.timer = 0; this.refresh(); }, QUICK);
    }

    async refresh() {
      if (this.busy) { this.again = true; return; }
      this.busy = true;
      try {
        const { mark, known } = this.root.dataset;
        const query = new URLSearchParams({ mark, state: known });
        const answer = await fetch(`${document.body.dataset.root}/runs/${this.session}/timeline?${query}`, { headers: { "HX-Request": "true" } });
        window.ferrule.met(answer.status);
        if (answer.status === 200) this.merge(await answer.text());
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        window.ferrule.met(0); // The server cannot be reached now; the next poll tries again.
      } finally {
        this.busy = false;
        if (this.again) { this.again = false; this.soon(); }
      }
    }

    merge(text) {
      const made = new DOMParser().parseFromString(text, "text/html").querySelector("section.run");
      if (!made) return;
      const low = atBottom(), before = this.root.dataset.state;
      const whole = made.dataset.whole === "yes";
      this.entries(made, whole);
      for (const name of ["bar", "told", "below", "working"]) this.replace(this.part(name), this.part(name, made));
      this.live(made, whole);
      for (const name of ["mark", "state", "known"]) this.root.dataset[name] = made.dataset[name];
      for (const asks of this.root.querySelectorAll("[data-question]:not([data-told])")) {
        asks.dataset.told = "";
        this.announce(asks.dataset.question);
      }
      if (before !== made.dataset.state) this.changed(made.dataset.state);
      window.ferrule.localize(this.root);
      if (low) toBottom();
    }

    entries(made, whole) {
      const here = this.part("entries");
      if (whole) {
        this.replace(here, this.part("entries", made));
        return;
      }
      for (const fresh of [...this.part("entries", made).children]) {
        const known = document.getElementById(fresh.id);
        if (known) this.replace(known, fresh);
        else { here.append(fresh); window.htmx.process(fresh); }
      }
    }

    replace(old, fresh) {
      if (!old || !fresh || old.isEqualNode(fresh)) return;
      for (const kept of old.querySelectorAll("details[data-keep]")) {
        const twin = fresh.querySelector(`details[data-keep="${kept.dataset.keep}"]`);
        if (twin) twin.open = kept.open;
      }
      const note = old.querySelector('.question input[name="note"]')?.value;
      const field = fresh.querySelector('.question input[name="note"]');
      if (note && field) field.value = note;
      const held = old.contains(document.activeElement) ? focusOf(document.activeElement) : null;
      old.replaceWith(fresh);
      window.htmx.process(fresh);
      if (held) fresh.querySelector(held)?.focus({ preventScroll: true });
    }

    live(made, whole) {
      const here = this.part("live"), there = this.part("live", made);
      // If both hold the same streaming answer, keep the one that has more of it.
      const same = here.dataset.place.split(".")[0] === there.dataset.place.split(".")[0];
      if (whole || !same || after(there.dataset.place, here.dataset.place)) here.replaceWith(there);
    }

    changed(state) {
      if (this.unsaid) { this.announce(this.unsaid); this.unsaid = ""; }
      const words = { running: "running", waiting: "it waits for your answer", done: "done", failed: "failed", cancelled: "stopped", limit: "a limit was reached", interrupted: "interrupted" };
      this.announce(words[state] ?? state);
      if (!["running", "waiting"].includes(state)) document.body.dispatchEvent(new CustomEvent("ferrule:ended"));
    }

    // For screen readers: sentence by sentence, because single words cannot be followed.
    speak(piece) {
      this.unsaid = (this.unsaid ?? "") + piece;
      const end = Math.max(...[". ", "! ", "? ", "\n"].map((mark) => this.unsaid.lastIndexOf(mark)));
      if (end < 0) return;
      this.announce(this.unsaid.slice(0, end + 1));
      this.unsaid = this.unsaid.slice(end + 1);
    }

    announce(text) {
      const place = this.root.querySelector("[data-announce]"), line = document.createElement("p");
      line.textContent = text.trim();
      place.append(line);
      while (place.children.length > 6) place.firstChild.remove();
    }
  }

  // Whether place "12.3" is after "12.2".
  function after(one, other) {
    const [a, b = 0] = String(one).split(".").map(Number), [c, d = 0] = String(other).split(".").map(Number);
    return a > c || (a === c && b > d);
  }

  function focusOf(element) {
    if (element.id) return `#${CSS.escape(element.id)}`;
    if (element.name) return `${element.tagName.toLowerCase()}[name="${CSS.escape(element.name)}"]`;
    const kept = element.closest("details[data-keep]");
    return kept ? `details[data-keep="${kept.dataset.keep}"] > summary` : null;
  }

  const atBottom = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
  const toBottom = () => window.scrollTo({ top: document.documentElement.scrollHeight });

  const runs = [];
  for (const root of document.querySelectorAll("section.run")) {
    const kinds = (root.closest("[data-kinds]")?.dataset.kinds ?? "").split(" ").filter(Boolean);
    runs.push(new Run(root, kinds));
  }

  // Clear the field of a message that was accepted, and refresh its run.
  document.addEventListener("htmx:after:request", (event) => {
    const ctx = event.detail.ctx, form = ctx.sourceElement;
    if (ctx.response?.raw?.ok && form.matches?.("[data-composer]")) form.reset();
    for (const run of runs) run.soon();
  });

  // Copy a message as its author wrote it. Without a clipboard (no secure context) the link opens the text.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a[data-copy]");
    if (!link || !navigator.clipboard || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const answer = await fetch(link.href);
    window.ferrule.met(answer.status);
    if (!answer.ok) return window.ferrule.say("this message could not be read; reload the page");
    await navigator.clipboard.writeText(await answer.text());
    link.textContent = "Copied";
    setTimeout(() => { link.textContent = "Copy"; }, 2000);
  });

  // a: go to the first open question.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "a" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
    document.querySelector(".question h3")?.focus();
    document.querySelector(".question")?.scrollIntoView({ block: "center" });
  });
})();
