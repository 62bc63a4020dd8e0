// Returns the console's own texts on a page: headings, labels, buttons, hints. Names and values from callers are excluded.
const selectors = "title, h1, h2, h3, dt, th, label, button, caption, figcaption, summary, option, footer p, nav a, main p, .hint, "
  + ".legend li, .health li, .status span, .choices a, .mark";
const texts = new Set();
for (const element of document.querySelectorAll(selectors)) {
  if (element.closest("[aria-labelledby=metadata] dl, .key, select#tenant, select#method, .health")) continue;
  const own = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data.trim()).join(" ");
  texts.add(own.trim());
}
for (const element of document.querySelectorAll("[aria-label], [data-label]")) {
  texts.add(element.ariaLabel ?? "");
  texts.add(element.dataset.label ?? "");
}
// Only texts with three Latin letters in a row can be left untranslated.
return [...texts].filter((text) => /[a-z]{3}/i.test(text) && !/^(ichido|claim)$/.test(text));
