// The words of a page that are ours: headings, labels, buttons, hints. Names and values that came from callers are left out.
const places = "title, h1, h2, h3, dt, th, label, button, caption, figcaption, summary, option, footer p, nav a, main p, .hint, "
  + ".legend li, .health li, .status span, .choices a, .mark";
const words = new Set();
for (const element of document.querySelectorAll(places)) {
  if (element.closest("[aria-labelledby=metadata] dl, .key, select#tenant, select#method, .health")) continue;
  const own = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data.trim()).join(" ");
  words.add(own.trim());
}
for (const element of document.querySelectorAll("[aria-label], [data-label]")) {
  words.add(element.ariaLabel ?? "");
  words.add(element.dataset.label ?? "");
}
// A name of ours that has three letters in a row can be read, and so can be translated.
return [...words].filter((word) => /[a-z]{3}/i.test(word) && !/^(ichido|claim)$/.test(word));
