// Elements are built from text alone: nothing in the data is ever parsed as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { index: data.start, averaging: "mean", method: data.methods[0] };
const currentRadius = () => data.grid[state.index];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// The largest number with this many decimals that is not above the value: no claim exceeds what was proved.
function roundedDown(value, decimals) {
  const scale = 10 ** decimals;
  let steps = Math.floor(value * scale) + 2;
  while (steps / scale > value) steps -= 1;
  return (steps / scale).toFixed(decimals);
}

function percent(fraction) {
  let steps = Math.floor(fraction * 1000) + 2;
  while (steps / 1000 > fraction) steps -= 1;
  return `${Math.floor(steps / 10)}.${steps % 10}`;
}

// The smallest number with two decimals that is not below the value: no ceiling is shown lower than proved.
function roundedUp(value) {
  let steps = Math.ceil(value * 100) - 2;
  while (steps / 100 < value) steps += 1;
  return (steps / 100).toFixed(2);
}

// Every score is a fraction and a floor, except the number of wrong labels, which is a ceiling.
const isFraction = (score) => score !== "false_ceiling";
const scoreText = (score, value) => (isFraction(score) ? percent(value) : roundedUp(value));

// Two significant digits, rounded down; a number of 100 or more keeps all digits before the point.
function twoDigits(value) {
  return value > 0 ? roundedDown(value, Math.max(0, 1 - Math.floor(Math.log10(value)))) : "0";
}

const plain = String; // exact: a radius rounded up would claim what was not proved

const radiusOf = (stored) => (stored === "inf" ? Infinity : stored === "-inf" ? -Infinity : stored);

function radiusText(radius) {
  if (radius === Infinity) return "cannot fail";
  return radius === -Infinity ? "not certified" : data.whole ? plain(radius) : roundedDown(radius, 3);
}

const SVG = "http://www.w3.org/2000/svg";
const MARKER_PATHS = {
  circle: "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
  square: "M-3.2-3.2h6.4v6.4h-6.4z",
  diamond: "M0-4.4L4.4 0 0 4.4-4.4 0z",
  "triangle-up": "M0-4.2L4.2 3.4h-8.4z",
  x: "M-4-2.2L-2.2-4 0-1.8 2.2-4 4-2.2 1.8 0 4 2.2 2.2 4 0 1.8-2.2 4-4 2.2-1.8 0z",
  "triangle-down": "M0 4.2L4.2-3.4h-8.4z",
  star: "M0-5l1.5 3.1 3.4.4-2.5 2.4.7 3.4L0 2.7l-3.1 1.6.7-3.4-2.5-2.4 3.4-.4z",
  pentagon: "M0-4.4L4.2-1.3 2.6 3.6h-5.2L-4.2-1.3z",
};

// The legend key of a line as the charts draw it: dash, marker and colour.
function lineKey(line) {
  const drawing = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 44 12", width: 44, height: 12, "aria-hidden": "true", class: "key" })) {
    drawing.setAttribute(name, value);
  }
  const stroke = document.createElementNS(SVG, "path");
  stroke.setAttribute("d", "M1 6H43");
  stroke.setAttribute("stroke-dasharray", line.dash.join(" ") || "none");
  stroke.setAttribute("stroke-width", line.base ? 2.6 : 1.7);
  const marker = document.createElementNS(SVG, "path");
  marker.setAttribute("d", MARKER_PATHS[line.marker]);
  marker.setAttribute("transform", "translate(22 6)");
  drawing.append(stroke, marker);
  drawing.style.setProperty("--light", line.light);
  drawing.style.setProperty("--dark", line.dark);
  return drawing;
}
