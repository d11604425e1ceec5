// Colours one text at a time (see code.js).
"use strict";
importScripts("highlight.min.js");
self.onmessage = (event) => {
  const { language, text } = event.data;
  self.postMessage(self.hljs.getLanguage(language) ? self.hljs.highlight(text, { language, ignoreIllegals: true }).value : "");
};
