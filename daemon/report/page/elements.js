// SPDX-License-Identifier: Apache-2.0
// How the page makes elements. Text becomes text nodes, never markup: nothing in these files sets innerHTML.
"use strict";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// A text of the job: what it does to the direction of writing ends with it.
function foreign(text) {
  return el("bdi", null, text);
}

// Numbers that JSON has none for come as texts.
function numberOf(value) {
  return typeof value === "number" ? value : value === null || value === undefined ? NaN : Number(value);
}

function brief(value) {
  if (value === null || value === undefined) return "-";
  const number = numberOf(value);
  if (!Number.isFinite(number)) return String(value).replace("Infinity", "Inf");
  if (Math.abs(number) < 1e9 && (Number.isInteger(number) || Math.abs(number) >= 1000)) return grouped(Math.round(number));
  const text = number.toPrecision(4);
  return text.includes("e") ? text.replace(/\.?0+e/, "e") : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

function stepText(step) {
  return numberOf(step) < 0 ? "unknown" : grouped(step);
}

// A color of the style sheet, as it is now (light, dark or print).
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function say(text) {
  document.getElementById("said").textContent = text;
}

function section(id, title, ...children) {
  return el("section", {id, "aria-labelledby": id + "-title"}, el("h2", {id: id + "-title"}, title), ...children);
}

function pairs(rows) {
  return el("dl", null, rows.flatMap((row) => [el("dt", null, row.label), el("dd", null, foreign(row.value))]));
}

// What a picture is drawn for again: another size, other colors.
const drawings = [];
function redraw() {
  for (const draw of drawings) draw();
}
