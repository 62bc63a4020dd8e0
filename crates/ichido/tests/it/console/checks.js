// Checks that hold for every page. Returns a list of problems.
const problems = [];
const root = document.documentElement;
if (root.scrollWidth > innerWidth) {
  const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1);
  problems.push(`wider than the window: ${root.scrollWidth} > ${innerWidth}: ${wide.map((e) => e.outerHTML.slice(0, 80)).slice(0, 3)}`);
}
if (!["en", "ja"].includes(root.lang)) problems.push(`lang is ${root.lang}`);
for (const [selector, count] of [["h1", 1], ["main", 1], ["header", 1], ["a.skip", 1]]) {
  const found = document.querySelectorAll(selector).length;
  if (found !== count) problems.push(`${found} elements match ${selector}, expected ${count}`);
}
for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
  if (!field.labels.length && !field.ariaLabel) problems.push(`field without a label: ${field.outerHTML}`);
}
for (const control of document.querySelectorAll("button, a[href]")) {
  if (!control.textContent.trim() && !control.ariaLabel) problems.push(`control without an accessible name: ${control.outerHTML}`);
}
for (const table of document.querySelectorAll("table")) {
  if (!table.caption || !table.caption.textContent.trim()) problems.push("table without a caption");
  for (const th of table.querySelectorAll("th")) if (!th.scope) problems.push("th without scope");
}
for (const form of document.querySelectorAll("form[method=post]")) {
  if (!form.elements.csrf || !form.elements.csrf.value) problems.push(`form without a CSRF token: ${form.outerHTML}`);
}
for (const svg of document.querySelectorAll("svg")) {
  const label = document.getElementById(svg.getAttribute("aria-labelledby"));
  if (svg.getAttribute("role") !== "img" || !label) problems.push("svg without role=img and a label");
}
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
const duplicates = ids.filter((id, index) => ids.indexOf(id) !== index);
if (duplicates.length) problems.push(`duplicate ids: ${duplicates}`);
const levels = [...document.querySelectorAll("h1, h2, h3")].map((h) => Number(h.tagName[1]));
levels.forEach((level, index) => {
  if (index && level > levels[index - 1] + 1) problems.push("skipped heading level");
});

// Nothing overflows its card.
for (const card of document.querySelectorAll(".figures > div, .plot, .facts, .notice, table.cards, .empty, button, .button")) {
  const edge = card.getBoundingClientRect().right;
  const overflowing = [...card.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width > 1 && box.right > edge + 1 && !e.closest(".hidden, thead, svg, .scroll *");
  });
  if (overflowing.length) problems.push(`overflows its card: ${overflowing[0].outerHTML.slice(0, 120)}`);
  if (card.scrollWidth > card.clientWidth + 1 && card.clientWidth > 0) problems.push(`content is clipped: ${card.outerHTML.slice(0, 120)}`);
}

// Contrast of every text against its background (WCAG 2.2 AA).
const channels = (color) => color.match(/[\d.]+/g).map(Number);
const luminance = ([r, g, b]) => {
  const linear = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
};
const background = (element) => {
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
  const [lighter, darker] = [luminance(channels(style.color)), luminance(background(element))].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = (lighter + 0.05) / (darker + 0.05);
  if (ratio < (large ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${walker.currentNode.data.trim().slice(0, 40)}`);
}
return problems;
