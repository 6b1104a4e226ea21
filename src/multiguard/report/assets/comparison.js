// The controls of a comparison: radius and averaging; the charts and the table follow them.
const slider = document.getElementById("radius");
const view = new FamilyView("scores", data.families);

function update() {
  const radius = plain(currentRadius());
  for (const cell of document.querySelectorAll("[data-radius]")) cell.textContent = radius;
  document.getElementById("radius-shown").textContent = radius;
  slider.setAttribute("aria-valuetext", `R = ${radius}`);
  slider.style.setProperty("--filled", state.index / Math.max(1, data.grid.length - 1));
  view.update();
}

slider.addEventListener("input", () => {
  state.index = Number(slider.value);
  update();
});
for (const choice of document.querySelectorAll("[name=averaging]")) {
  choice.addEventListener("change", () => {
    state.averaging = choice.value;
    view.draw();
    update();
  });
}
followAddress({
  R: [() => plain(currentRadius()), (text) => setRadius(text)],
  average: [() => state.averaging, setAveraging],
}, update);
followWindow(() => view.draw(), () => { view.near = true; });
update();
