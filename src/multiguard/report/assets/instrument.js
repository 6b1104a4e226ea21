// The controls: radius, averaging and method; everything on the page follows them.
const slider = document.getElementById("radius");
const methodSelect = document.getElementById("method");
const methodsFamily = data.families.find((family) => family.key === "methods");
const SWEEPS = ["k_prime", "k", "threshold", "n", "alpha"];
const views = [new FamilyView("methods", [methodsFamily])];
const sweeps = data.families.filter((family) => SWEEPS.includes(family.key));
const runs = data.families.filter((family) => ["noise", "training"].includes(family.key));
if (sweeps.length) views.push(new FamilyView("sweeps", sweeps));
if (runs.length) views.push(new FamilyView("runs", runs));
views.push(new Offers());
const followers = [...views, new LabelStrips(), new Gallery()];

function showNumbers() {
  const radius = plain(currentRadius());
  const scores = methodsFamily.lines.find((line) => line.value === state.method)[state.averaging];
  for (const cell of document.querySelectorAll("[data-score]")) cell.textContent = scoreText(cell.dataset.score, scores[cell.dataset.score][state.index]);
  const floors = methodsFamily.lines.find((line) => line.value === state.method).mean;
  for (const cell of document.querySelectorAll("[data-floor]")) cell.textContent = percent(floors[cell.dataset.floor][state.index]);
  for (const cell of document.querySelectorAll("[data-radius]")) cell.textContent = radius;
  for (const cell of document.querySelectorAll("[data-threat]")) cell.textContent = data.threats[state.index];
  showPrice(scores);
  const closing = document.querySelector("[data-closing]");
  closing.textContent = closing.textContent.replace(/^At R = .*? at least \d+/, `At ${data.at[state.index]} at least ${data.staying[state.method][state.index]}`);
  document.getElementById("radius-shown").textContent = radius;
  slider.setAttribute("aria-valuetext", `R = ${radius}`);
  slider.style.setProperty("--filled", state.index / Math.max(1, data.grid.length - 1));
  document.getElementById("whose").textContent = data.whose[state.averaging];
}

// The bars of the price, whose observed rows follow the averaging and whose certified row follows the radius.
function showPrice(scores) {
  for (const cell of document.querySelectorAll(".price td > span:last-child")) {
    const { clean, of, score } = cell.dataset;
    const value = clean ? data.clean[clean][state.averaging][of] : scores[score][state.index];
    cell.textContent = percent(value);
    cell.parentElement.style.setProperty("--fraction", value);
  }
}

// How large such a perturbation is, where that is known.
function showSize() {
  const words = document.getElementById("size-words");
  const found = data.sizes[state.index];
  words.hidden = !found;
  if (found) words.replaceChildren(element("b", {}, found[0]), found[1]);
}

let waiting = false;
function update() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    showNumbers();
    showSize();
    for (const follower of followers) follower.update();
  });
}

function redraw() {
  for (const view of views) view.draw();
}

slider.addEventListener("input", () => {
  state.index = Number(slider.value);
  update();
});
for (const choice of document.querySelectorAll("[name=averaging]")) {
  choice.addEventListener("change", () => {
    state.averaging = choice.value;
    redraw();
    update();
  });
}
methodSelect.addEventListener("change", () => {
  state.method = methodSelect.value;
  update();
});
followWindow(redraw, () => {
  for (const view of views) view.near = true;
});
const controlChoice = (id) => {
  const control = document.getElementById(id);
  return [() => control.value, (text) => setControl(control, text)];
};
followAddress({
  R: [() => plain(currentRadius()), setRadius],
  average: [() => state.averaging, setAveraging],
  method: [() => state.method, (text) => { setControl(methodSelect, text); state.method = methodSelect.value; }],
  sort: controlChoice("image-order"),
  label: controlChoice("image-label"),
  find: controlChoice("image-text"),
  show: controlChoice("image-look"),
  labels: controlChoice("label-order"),
}, () => { redraw(); update(); });
showNumbers();
showSize();
for (const follower of followers) follower.update();
