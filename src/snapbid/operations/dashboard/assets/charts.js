// Line charts with axes and a pointer: chart(figure, {title, lines, points, span, format}).
// `points` are [age in s, value, value, …], oldest first; null is a gap. The caption shows the values
// at the pointer, or else the newest.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 560, height: 170, left: 78, right: 8, top: 12, bottom: 26 };

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A round number at or above a value: 1, 2 or 5 times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

function ago(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 120) return `${Math.round(seconds)} s ago`;
  return seconds < 7200 ? `${+(seconds / 60).toFixed(1)} min ago` : `${+(seconds / 3600).toFixed(1)} h ago`;
}

function chart(figure, { title, lines, points, span, format, least }) {
  const { width, height, left, right, top, bottom } = BOX;
  const values = points.flatMap((point) => point.slice(1)).filter((value) => value !== null);
  const highest = roundUp(Math.max(least, ...values));
  const x = (age) => left + (width - left - right) * (1 - age / span);
  const y = (value) => top + (height - top - bottom) * (1 - value / highest);
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const level = y(highest * part);
    drawn.append(shape("line", { x1: left, x2: width - right, y1: level, y2: level, class: "grid" }));
    if (part % 0.5 === 0) {
      drawn.append(shape("text", { x: left - 6, y: level + 4, "text-anchor": "end" }, format(highest * part)));
    }
  }
  for (const part of [0, 0.5, 1]) {
    const anchor = part === 0 ? "end" : part === 1 ? "start" : "middle";
    drawn.append(shape("text", { x: x(span * part), y: height - 6, "text-anchor": anchor }, ago(span * part)));
  }
  lines.forEach(({ kind }, index) => {
    let path = "";
    let pen = "M";
    for (const point of points) {
      const value = point[index + 1];
      if (value === null || value === undefined) {
        pen = "M";
        continue;
      }
      path += `${pen}${x(Math.min(point[0], span)).toFixed(1)} ${y(value).toFixed(1)}${pen === "M" ? "h0" : ""}`;
      pen = "L";
    }
    drawn.append(shape("path", { d: path, class: `curve ${kind}` }));
  });
  const mark = shape("line", { y1: top, y2: height - bottom, class: "mark", visibility: "hidden" });
  drawn.append(mark);
  const legend = document.createElement("figcaption");
  const say = (point) => {
    const parts = lines.map(({ name, kind }, index) => {
      const item = document.createElement("span");
      const key = document.createElement("i");
      key.className = kind;
      const value = point && point[index + 1];
      item.append(key, `${name} `, value === null || value === undefined ? "–" : format(value));
      return item;
    });
    legend.replaceChildren(title, ...parts, point ? ago(point[0]) : "");
  };
  const last = points.at(-1);
  drawn.addEventListener("pointermove", (event) => {
    if (!points.length) return;
    const box = drawn.getBoundingClientRect();
    const age = span * (1 - ((event.clientX - box.left) * width / box.width - left) / (width - left - right));
    const near = points.reduce((a, b) => (Math.abs(b[0] - age) < Math.abs(a[0] - age) ? b : a));
    for (const name of ["x1", "x2"]) mark.setAttribute(name, x(Math.min(near[0], span)));
    mark.setAttribute("visibility", "visible");
    figure.dataset.held = "1";
    say(near);
  });
  drawn.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    delete figure.dataset.held;
    say(last);
  });
  say(last);
  figure.replaceChildren(legend, drawn);
}
