// A run in progress. The server renders every entry; this puts them in place and adds text as it streams.
//
// The stream only says that something happened. What happened is fetched after the mark of the last response, so that a lost connection,
// a hidden tab or a restarted server loses nothing and shows nothing twice. An answer that streams is added as it comes, once a frame, and
// laid out by the server: its finished blocks stay, only its unfinished end is replaced.
"use strict";
(() => {
  const SLOW = 4000, QUICK = 120, LAYOUT = 300, MOST_OF_ARGUMENT = 2000, CHUNK = 4000, BLOCKS_OF_PART = 32, UNDER_HEADER = 64;
  const NEWS = ["stream.reset", "stream.failed"];

  class Run {
    constructor(root, kinds) {
      this.root = root;
      this.kinds = kinds;
      this.session = root.dataset.session;
      this.cursor = root.dataset.cursor;
      this.busy = this.again = this.asked = false;
      this.timer = this.frame = 0;
      this.pieces = []; // not shown yet
      this.shown = []; // shown, but not in the last response
      this.open();
      join(this.part("live").querySelector("[data-tail]"));
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
      if (!kind.startsWith("piece.")) return this.soon();
      this.pieces.push({ kind, ...said });
      this.frame ||= requestAnimationFrame(() => this.show());
    }

    // Everything that came since the last frame: the page is measured and scrolled once for all of it.
    show() {
      this.frame = 0;
      const low = atBottom(), fresh = this.pieces;
      this.pieces = [];
      this.add(fresh);
      this.shown.push(...fresh);
      this.speak(fresh.filter((one) => one.kind === "piece.text").map((one) => one.payload.text).join(""));
      if (low) toBottom();
      this.soon(LAYOUT);
    }

    add(pieces) {
      const live = this.part("live"), words = { text: "", reasoning: "" };
      if (!live) return;
      for (const piece of pieces) {
        if (piece.kind === "piece.progress") { this.progress(piece); continue; }
        // A response holds the text and the calls up to its place; reasoning only the first one.
        const place = piece.kind === "piece.reasoning" ? "thought" : "place";
        if (!after(piece.sequence, live.dataset[place])) continue;
        live.dataset[place] = piece.sequence;
        if (piece.kind === "piece.arguments") this.arguments(live, piece);
        else words[piece.kind === "piece.text" ? "text" : "reasoning"] += piece.payload.text;
      }
      const thought = live.querySelector('[data-live="reasoning"]');
      if (words.reasoning) { thought.hidden = false; extend(thought, words.reasoning); }
      if (words.text) extend(live.querySelector("[data-tail]"), words.text);
    }

    // A call that the model is writing: the end of each of its arguments.
    arguments(live, said) {
      const { call, tool, name, text } = said.payload;
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

    soon(delay = QUICK) {
      if (!this.timer) this.timer = setTimeout(() => { this.timer = 0; this.refresh(); }, delay);
    }

    async refresh() {
      if (this.busy) { this.again = true; return; }
      this.busy = true;
      try {
        const { mark, known } = this.root.dataset;
        const query = new URLSearchParams({ mark, state: known, partial: this.part("live").dataset.mark });
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
      this.live(made);
      for (const name of ["mark", "state", "known"]) this.root.dataset[name] = made.dataset[name];
      for (const asks of this.root.querySelectorAll("[data-question]:not([data-told])")) {
        asks.dataset.told = "";
        this.announce(asks.dataset.question);
      }
      if (before !== made.dataset.state) this.changed(made.dataset.state);
      window.ferrule.localize(this.root);
      this.follow(low);
    }

    // A reader at the end stays there, but for a question that is longer than the window: it is read from its beginning.
    follow(low) {
      const question = this.root.querySelector("form.question");
      if (question ? !low || this.asked : !low && !this.asked) return;
      this.asked = Boolean(question);
      toBottom();
      if (question?.getBoundingClientRect().top < UNDER_HEADER) question.scrollIntoView({ block: "start" });
    }

    entries(made, whole) {
      const here = this.part("entries");
      if (whole) {
        this.replace(here, this.part("entries", made));
        return;
      }
      for (const fresh of [...this.part("entries", made).children]) {
        // Of an answer that was streaming until now the page has the first blocks.
        fresh.querySelector("[data-continues]")?.prepend(...this.part("live").querySelector("[data-blocks]").children);
        const known = document.getElementById(fresh.id);
        if (known) this.replace(known, fresh);
        else { here.append(fresh); window.ferrule.decorate(fresh); window.htmx.process(fresh); }
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
      window.ferrule.decorate(fresh);
      window.htmx.process(fresh);
      if (held) fresh.querySelector(held)?.focus({ preventScroll: true });
    }

    live(made) {
      const here = this.part("live"), there = this.part("live", made);
      // What came while the response was on its way is not in it.
      this.shown = this.shown.filter((piece) => after(piece.sequence, there.dataset.place));
      const begins = there.dataset.begins === "yes";
      if (begins) {
        here.replaceWith(there);
        for (const block of there.querySelectorAll("[data-blocks] .block")) window.ferrule.decorate(block);
        join(there.querySelector("[data-tail]"));
        for (const place of there.querySelectorAll('[data-tail], [data-live="reasoning"]')) split(place);
      } else {
        const blocks = [...there.querySelectorAll("[data-blocks] .block")];
        append(here.querySelector("[data-blocks]"), blocks);
        for (const block of blocks) window.ferrule.decorate(block);
        here.dataset.mark = there.dataset.mark;
        // Without a new layout the page has it all already, or gets it from the stream.
        if (there.dataset.tail === "kept") return;
        here.querySelector('[data-live="calls"]').replaceWith(there.querySelector('[data-live="calls"]'));
        here.querySelector("[data-tail]").replaceWith(there.querySelector("[data-tail]"));
        join(here.querySelector("[data-tail]"));
        split(here.querySelector("[data-tail]"));
        here.dataset.place = there.dataset.place;
      }
      this.add(this.shown.filter((piece) => piece.kind !== "piece.progress" && (begins || piece.kind !== "piece.reasoning")));
    }

    changed(state) {
      if (this.unsaid) { this.announce(this.unsaid); this.unsaid = ""; }
      const words = { running: "running", waiting: "it waits for your answer", done: "done", failed: "failed", cancelled: "stopped", limit: "a limit was reached", interrupted: "interrupted" };
      this.announce(words[state] ?? state);
      if (!["running", "waiting"].includes(state)) document.body.dispatchEvent(new CustomEvent("ferrule:ended"));
    }

    // For screen readers: sentence by sentence, because single words cannot be followed.
    speak(piece) {
      if (!piece) return;
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

  // Add text to the end of what is laid out. A long text is split into parts, so that only the last one is laid out again.
  function extend(place, text) {
    const at = endOf(place);
    let last = at.lastElementChild;
    if (!last?.matches(".chunk")) {
      last = document.createElement("span");
      last.className = "chunk";
      at.append(last);
    }
    last.append(text);
    last.normalize();
    if (last.firstChild.length > CHUNK) split(at);
    if (at.matches("pre")) at.scrollTop = at.scrollHeight;
  }

  // The innermost element at the end of what is laid out.
  function endOf(place) {
    let at = place;
    while (at.lastElementChild?.matches("div, ul, ol, li, p, pre, blockquote, h3, table, tbody, tr, td")) at = at.lastElementChild;
    return at;
  }

  // What came after the layout follows its last word.
  function join(tail) {
    const rest = tail.lastElementChild;
    if (!rest?.matches(".chunk") || !rest.previousElementSibling) return;
    rest.remove();
    endOf(tail).append(rest);
  }

  // Add finished blocks, in parts: only those on the screen are laid out.
  function append(place, blocks) {
    for (const block of blocks) {
      let part = place.lastElementChild;
      if (!part || part.children.length >= BLOCKS_OF_PART) {
        part = document.createElement("div");
        part.className = "part";
        place.append(part);
      }
      part.append(block);
    }
  }

  // Split long texts at the ends of lines.
  function split(place) {
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT), long = [];
    while (walker.nextNode()) if (walker.currentNode.length > CHUNK) long.push(walker.currentNode);
    for (const node of long) {
      const parts = [], text = node.data;
      for (let at = 0, end; at < text.length; at = end) {
        const line = text.lastIndexOf("\n", at + CHUNK);
        end = at + CHUNK >= text.length ? text.length : line > at ? line + 1 : at + CHUNK;
        const part = document.createElement("span");
        part.className = parts.length ? "chunk more" : node.parentElement.matches(".more") ? "chunk more" : "chunk";
        part.textContent = text.slice(at, end);
        parts.push(part);
      }
      if (node.parentElement.matches(".chunk")) node.parentElement.replaceWith(...parts);
      else node.replaceWith(...parts);
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
  window.ferrule.decorate(document);

  // Clear the field of a message that was accepted, and refresh its run.
  document.addEventListener("htmx:after:request", (event) => {
    const ctx = event.detail.ctx, form = ctx.sourceElement;
    if (ctx.response?.raw?.ok && form.matches?.("[data-composer]")) {
      form.reset();
      toBottom(); // what one has written is read on from there
    }
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
