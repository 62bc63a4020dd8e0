// Shows how long ago things happened, and updates the texts and plot lines of the overview by name. Pages work without it.
"use strict";

(() => {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const format = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" });
  const showAges = () => {
    for (const element of document.querySelectorAll("time[data-relative]")) {
      const seconds = (Date.parse(element.dateTime) - Date.now()) / 1000;
      const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) ?? units[3];
      const text = format.format(Math.trunc(seconds / length), unit);
      if (element.textContent !== text) element.textContent = text;
    }
  };
  showAges();
  setInterval(showAges, 10000);

  const goOn = document.querySelector("a[data-go-on]");
  if (goOn) {
    location.replace(goOn.href);
    return;
  }

  const box = document.querySelector("[data-source]");
  if (!box) return;
  const state = box.querySelector("[data-live-state]");
  const button = box.querySelector("[data-live-pause]");
  // A sample arrives every two seconds. A connection that is cut silently delivers none, and raises no error either.
  const silenceMs = 10000;
  let source = null;
  let watchdog = 0;

  const setState = (name) => {
    const text = state.dataset[name];
    if (state.textContent !== text) state.textContent = text;
    box.dataset.state = name;
    if (name === "off") markUnknown(text);
  };

  // The state of the process is unknown, so nothing may look healthy.
  const markUnknown = (text) => {
    for (const element of document.querySelectorAll("[data-state-of]")) element.dataset.state = "unknown";
    document.querySelector("#health").textContent = text;
  };

  const show = (texts) => {
    for (const element of document.querySelectorAll("[data-live]")) {
      const text = texts[element.dataset.live];
      if (text !== undefined && element.textContent !== text) element.textContent = text;
    }
    for (const element of document.querySelectorAll("[data-state-of]")) {
      const value = texts[element.dataset.stateOf];
      if (value !== undefined) element.dataset.state = value;
    }
    for (const path of document.querySelectorAll("[data-path]")) {
      const line = texts[path.dataset.path];
      if (line !== undefined) path.setAttribute("d", line);
    }
  };

  const start = () => {
    source = new EventSource(box.dataset.source);
    source.onmessage = (event) => {
      setState("on");
      show(JSON.parse(event.data));
      watch();
    };
    source.onerror = () => setState("off");
    button.textContent = button.dataset.pause;
    watch();
  };

  const watch = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => {
      setState("off");
      source.close();
      start();
    }, silenceMs);
  };

  const stop = () => {
    clearTimeout(watchdog);
    source.close();
    source = null;
    setState("paused");
    button.textContent = button.dataset.goOn;
  };

  button.hidden = false;
  button.addEventListener("click", () => (source ? stop() : start()));
  // Firefox keeps visited pages alive: an invisible stream would occupy one of its six connections.
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (event) => event.persisted && source && start());
  start();
})();
