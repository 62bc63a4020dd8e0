// Keeps the overview live: texts and the lines of plots, by name. Pages work without it.
"use strict";

(() => {
  const goOn = document.querySelector("a[data-go-on]");
  if (goOn) {
    location.replace(goOn.href);
    return;
  }

  const box = document.querySelector("[data-source]");
  if (!box) return;
  const state = box.querySelector("[data-live-state]");
  const button = box.querySelector("[data-live-pause]");
  // A sample comes every two seconds. A connection that is cut without a word brings none, and no error either.
  const silence = 10000;
  let source = null;
  let watchdog = 0;

  const tell = (word) => {
    const text = state.dataset[word];
    if (state.textContent !== text) state.textContent = text;
    box.dataset.state = word;
    if (word === "off") doubt(text);
  };

  // Nothing is known of the process any more, so nothing may look well.
  const doubt = (text) => {
    for (const element of document.querySelectorAll("[data-state-of]")) element.dataset.state = "unknown";
    document.querySelector("#health").textContent = text;
  };

  const show = (texts) => {
    for (const element of document.querySelectorAll("[data-live]")) {
      const text = texts[element.dataset.live];
      if (text !== undefined && element.textContent !== text) element.textContent = text;
    }
    for (const element of document.querySelectorAll("[data-state-of]")) {
      const word = texts[element.dataset.stateOf];
      if (word !== undefined) element.dataset.state = word;
    }
    for (const path of document.querySelectorAll("[data-path]")) {
      const line = texts[path.dataset.path];
      if (line !== undefined) path.setAttribute("d", line);
    }
  };

  const start = () => {
    source = new EventSource(box.dataset.source);
    source.onmessage = (event) => {
      tell("on");
      show(JSON.parse(event.data));
      watch();
    };
    source.onerror = () => tell("off");
    button.textContent = button.dataset.pause;
    watch();
  };

  const watch = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => {
      tell("off");
      source.close();
      start();
    }, silence);
  };

  const stop = () => {
    clearTimeout(watchdog);
    source.close();
    source = null;
    tell("paused");
    button.textContent = button.dataset.goOn;
  };

  button.hidden = false;
  button.addEventListener("click", () => (source ? stop() : start()));
  // Firefox keeps pages of the past alive: a stream that nobody sees holds one of six connections.
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (event) => event.persisted && source && start());
  start();
})();
