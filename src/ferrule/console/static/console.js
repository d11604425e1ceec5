// What the console's pages do beyond links and forms. htmx sends and swaps; this adds the CSRF token, local times, the theme and keyboard shortcuts.
"use strict";
(() => {
  const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";
  // Where people sign in: with us, or with the application that the console is mounted in; "" if nowhere.
  const signIn = document.body.dataset.signIn ?? "";

  document.addEventListener("htmx:config:request", (event) => {
    event.detail.ctx.request.headers["X-Ferrule-Csrf"] = csrf;
  });

  // While the server cannot be reached, polling requests share one indicator and recover by themselves; a failed action shows a message.
  const polls = (event) => Boolean(event.target.closest?.("[data-poll]"));

  function met(status) {
    const away = document.getElementById("away");
    if (!away) return;
    away.hidden = status !== 0 && status !== 401;
    away.replaceChildren();
    if (status === 0) away.textContent = "The server is away.";
    if (status !== 401) return;
    if (!signIn) {
      away.textContent = "You are signed out.";
      return;
    }
    const link = document.createElement("a");
    link.href = `${signIn}?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Sign in again";
    away.append(link);
  }

  document.addEventListener("htmx:error", (event) => {
    if (polls(event)) met(0);
    else say("the server did not answer; try again");
  });

  document.addEventListener("htmx:before:response", (event) => {
    const { status: said, raw } = event.detail.ctx.response;
    const status = raw.redirected && signIn && new URL(raw.url).pathname === new URL(signIn, location.href).pathname ? 401 : said;
    met(status);
    // Otherwise it would replace what is shown.
    if (status === 401 || (status >= 400 && polls(event))) event.preventDefault();
  });

  function say(text) {
    const place = document.getElementById("messages");
    const line = document.createElement("p");
    line.className = "message bad";
    line.textContent = text;
    place?.replaceChildren(line);
  }

  // ---- times: in the reader's time zone, shortened if today
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
  const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "long", timeStyle: "long" });

  function localize(root) {
    for (const one of root.querySelectorAll("time[data-moment]")) {
      const at = new Date(one.dateTime);
      const today = day.format(at) === day.format(new Date());
      one.textContent = today ? clock.format(at) : `${day.format(at)}, ${clock.format(at).slice(0, 5)}`;
      one.title = whole.format(at);
      one.removeAttribute("data-moment");
    }
  }

  // ---- theme
  const NEXT = { "": "light", light: "dark", dark: "" };
  const NAMES = { "": "system", light: "light", dark: "dark" };

  function paint(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    document.getElementById("theme")?.setAttribute("aria-label", `Theme: ${NAMES[theme]}`);
    const button = document.getElementById("theme");
    if (button) button.title = `Theme: ${NAMES[theme]}`;
  }

  document.getElementById("theme")?.addEventListener("click", () => {
    const theme = NEXT[localStorage.getItem("theme") ?? ""] ?? "";
    localStorage.setItem("theme", theme);
    paint(theme);
  });
  paint(NAMES[localStorage.getItem("theme")] ? localStorage.getItem("theme") : "");

  // ---- shortcuts: g and a letter opens an area, / goes to the search, Escape leaves a field
  let going = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) return typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      const field = document.querySelector("[data-search]");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (event.key === "?") {
      document.getElementById("keys")?.showModal();
    } else if (event.key === "g") {
      going = Date.now();
    } else if (Date.now() - going < 1500) {
      going = 0;
      document.querySelector(`.areas a[data-key="${CSS.escape(event.key)}"]`)?.click();
    }
  });

  document.getElementById("keys-open")?.addEventListener("click", () => document.getElementById("keys").showModal());

  // ---- a message is sent with Enter; with Shift, or on a telephone, Enter is a new line
  const hasKeyboard = matchMedia("(pointer: fine)");

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !event.target.matches?.("textarea")) return;
    const isPlain = !event.shiftKey && !event.altKey && hasKeyboard.matches && event.target.matches("[data-send]");
    if (event.ctrlKey || event.metaKey || isPlain) {
      event.preventDefault();
      event.target.form?.requestSubmit();
    }
  });

  // ---- files that are pasted or dropped into a message go along with it
  function attach(form, files) {
    const field = form?.querySelector('input[type="file"][name="files"]');
    if (!field || !files.length) return false;
    const all = new DataTransfer();
    for (const one of [...field.files, ...files]) all.items.add(one);
    field.files = all.files;
    list(field);
    return true;
  }

  // What goes along, each with a button that takes it out again.
  function list(field) {
    const place = field.form?.querySelector("[data-chips]");
    if (!place) return;
    place.hidden = !field.files.length;
    place.replaceChildren(...[...field.files].map((file, number) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.className = "plain small";
      button.textContent = "×";
      button.setAttribute("aria-label", `Remove ${file.name}`);
      button.addEventListener("click", () => {
        const kept = new DataTransfer();
        [...field.files].forEach((one, at) => { if (at !== number) kept.items.add(one); });
        field.files = kept.files;
        list(field);
      });
      item.append(file.name, button);
      return item;
    }));
  }

  document.addEventListener("change", (event) => { if (event.target.matches?.('input[name="files"]')) list(event.target); });
  document.addEventListener("reset", (event) => setTimeout(() => { const field = event.target.querySelector('input[name="files"]'); if (field) list(field); }));

  document.addEventListener("paste", (event) => {
    if (event.target.matches?.("textarea") && attach(event.target.form, event.clipboardData?.files ?? [])) event.preventDefault();
  });

  const dropPlace = (event) => (event.dataTransfer?.types.includes("Files") ? document.querySelector("[data-drop]") : null);
  document.addEventListener("dragover", (event) => {
    const place = dropPlace(event);
    if (!place) return;
    event.preventDefault();
    place.classList.add("drop");
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.querySelector(".drop")?.classList.remove("drop"); });
  document.addEventListener("drop", (event) => {
    const place = dropPlace(event);
    if (!place) return;
    event.preventDefault();
    place.classList.remove("drop");
    attach(place.closest("form"), event.dataTransfer.files);
  });

  document.addEventListener("click", (event) => {
    const example = event.target.closest?.("[data-example]");
    const field = example && document.querySelector("textarea[data-send]");
    if (!field) return;
    field.value = example.textContent;
    field.focus();
  });

  function count() {
    const number = document.getElementById("waiting")?.dataset.waiting ?? "0";
    document.title = document.title.replace(/^\(\d+\) /, "");
    if (number !== "0") document.title = `(${number}) ${document.title}`;
  }

  // Success messages disappear after a while; errors stay until the next message.
  let clearing = 0;
  function fade() {
    clearTimeout(clearing);
    const place = document.getElementById("messages");
    if (place?.querySelector(".good")) clearing = setTimeout(() => place.replaceChildren(), 6000);
  }

  document.addEventListener("htmx:after:swap", () => { localize(document); count(); fade(); });
  document.addEventListener("DOMContentLoaded", () => { localize(document); count(); });
  localize(document);
  count();
  document.querySelector('.areas a[aria-current]')?.scrollIntoView({ block: "nearest", inline: "center" });
  window.ferrule = { csrf, say, localize, met };
})();
