// Blocks of code: a button that copies one, and colours.
//
// highlight.js runs in a worker, which is ended if it takes too long: no text can block the page. What it returns is markup of ours only if
// it is made of its own spans, and is rebuilt from those.
"use strict";
(() => {
  const MOST = 50_000, PATIENCE = 2000, KEPT = 200;
  const known = new Map(); // by language and text, so that a block that is drawn again has its colours at once
  const waiting = [];
  let worker = null, timer = 0;

  function work() {
    const job = waiting[0];
    if (!job || timer) return;
    worker ??= new Worker(`${document.body.dataset.root}/static/code.worker.js`);
    worker.onmessage = (event) => finish(event.data);
    worker.onerror = () => finish("");
    timer = setTimeout(() => { worker.terminate(); worker = null; finish(""); }, PATIENCE);
    worker.postMessage({ language: job.language, text: job.text });
  }

  function finish(markup) {
    clearTimeout(timer);
    timer = 0;
    const job = waiting.shift();
    known.set(job.key, markup);
    if (known.size > KEPT) known.delete(known.keys().next().value);
    paint(job.pre, markup, job.text);
    work();
  }

  function paint(pre, markup, text) {
    if (!markup || !pre.isConnected || pre.textContent !== text) return;
    const made = new DOMParser().parseFromString(markup, "text/html").body;
    const spans = rebuild(made);
    if (spans.textContent === text) pre.replaceChildren(spans);
  }

  function rebuild(from) {
    const made = document.createDocumentFragment();
    for (const node of from.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) made.append(node.data);
      else if (node.localName === "span") {
        const span = document.createElement("span");
        span.className = [...node.classList].filter((name) => name.startsWith("hljs-")).join(" ");
        span.append(rebuild(node));
        made.append(span);
      }
    }
    return made;
  }

  function colour(pre) {
    const language = pre.dataset.language, text = pre.textContent;
    // Characters that are spelled out stay marked.
    if (!language || text.length > MOST || pre.querySelector(".unseen")) return;
    const key = `${language}\n${text}`;
    if (known.has(key)) paint(pre, known.get(key), text);
    else {
      waiting.push({ key, pre, language, text });
      work();
    }
  }

  function addButton(fence, pre) {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain small copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    fence.append(button);
  }

  // Only blocks near the screen: a long answer may have thousands.
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      const pre = target.querySelector("pre");
      addButton(target, pre);
      colour(pre);
    }
  }, { rootMargin: "800px" });

  function decorate(root) {
    for (const fence of root.querySelectorAll(".fence")) {
      if (!fence.closest("[data-tail]") && !fence.querySelector(".copy")) near.observe(fence);
    }
  }

  window.ferrule.decorate = decorate;
})();
