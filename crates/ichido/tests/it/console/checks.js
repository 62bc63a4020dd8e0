// What every page must be: returns a list of what is wrong.
const wrong = [];
const root = document.documentElement;
if (root.scrollWidth > innerWidth) {
  const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1);
  wrong.push(`wider than the window: ${root.scrollWidth} > ${innerWidth}: ${wide.map((e) => e.outerHTML.slice(0, 80)).slice(0, 3)}`);
}
if (!["en", "ja"].includes(root.lang)) wrong.push(`lang is ${root.lang}`);
for (const [what, count] of [["h1", 1], ["main", 1], ["header", 1], ["a.skip", 1]]) {
  const found = document.querySelectorAll(what).length;
  if (found !== count) wrong.push(`${found} times ${what}`);
}
for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
  if (!field.labels.length && !field.ariaLabel) wrong.push(`no label: ${field.outerHTML}`);
}
for (const control of document.querySelectorAll("button, a[href]")) {
  if (!control.textContent.trim() && !control.ariaLabel) wrong.push(`no name: ${control.outerHTML}`);
}
for (const table of document.querySelectorAll("table")) {
  if (!table.caption || !table.caption.textContent.trim()) wrong.push("a table without a caption");
  for (const th of table.querySelectorAll("th")) if (!th.scope) wrong.push("th without scope");
}
for (const form of document.querySelectorAll("form[method=post]")) {
  if (!form.elements.csrf || !form.elements.csrf.value) wrong.push(`no secret: ${form.outerHTML}`);
}
for (const svg of document.querySelectorAll("svg")) {
  const label = document.getElementById(svg.getAttribute("aria-labelledby"));
  if (svg.getAttribute("role") !== "img" || !label) wrong.push("a drawing without a name");
}
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
const twice = ids.filter((id, at) => ids.indexOf(id) !== at);
if (twice.length) wrong.push(`ids twice: ${twice}`);
const levels = [...document.querySelectorAll("h1, h2, h3")].map((h) => Number(h.tagName[1]));
levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) wrong.push("a heading is skipped"); });

// Nothing runs out of the card that it is in.
for (const card of document.querySelectorAll(".figures > div, .plot, .facts, .notice, table.cards, .empty, button, .button")) {
  const edge = card.getBoundingClientRect().right;
  const out = [...card.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width > 1 && box.right > edge + 1 && !e.closest(".hidden, thead, svg");
  });
  if (out.length) wrong.push(`runs out of its card: ${out[0].outerHTML.slice(0, 120)}`);
  if (card.scrollWidth > card.clientWidth + 1 && card.clientWidth > 0) wrong.push(`is cut: ${card.outerHTML.slice(0, 120)}`);
}

// Contrast of every text against what lies behind it (WCAG 2.2 AA).
const channels = (color) => color.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const part = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const [r, g, b, a = 1] = channels(getComputedStyle(e).backgroundColor);
    if (a > 0.99) return [r, g, b];
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const box = element.getBoundingClientRect();
  if (!walker.currentNode.data.trim() || box.width < 2 || element.closest(".skip")) continue;
  const style = getComputedStyle(element);
  const [one, other] = [light(channels(style.color)), light(behind(element))].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = (one + 0.05) / (other + 0.05);
  if (ratio < (large ? 3 : 4.5)) wrong.push(`contrast ${ratio.toFixed(2)}: ${walker.currentNode.data.trim().slice(0, 40)}`);
}
return wrong;
