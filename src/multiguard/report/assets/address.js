// What is chosen on the page is in its address, so that a view can be sent; and how charts follow the window.
function setRadius(text) {
  const index = data.grid.indexOf(Number(text));
  if (text === "" || index < 0) return;
  state.index = index;
  document.getElementById("radius").value = index;
}

function setAveraging(text) {
  const choice = [...document.querySelectorAll("[name=averaging]")].find(({ value }) => value === text);
  if (!choice) return;
  choice.checked = true;
  state.averaging = text;
}

// A select or a search field by its value; an unknown value is ignored.
function setControl(control, text) {
  if (control.options && ![...control.options].some(({ value }) => value === text)) return;
  control.value = text;
}

// `choices` are pairs to read and to set each choice by its name in the address; the names of sections stay links.
function followAddress(choices, update) {
  const initial = Object.fromEntries(Object.entries(choices).map(([name, [read]]) => [name, read()]));
  let written = location.hash;

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const [name, [, set]] of Object.entries(choices)) if (given.has(name)) set(given.get(name));
  }

  function write() {
    const view = new URLSearchParams();
    for (const [name, [now]] of Object.entries(choices)) if (now() !== initial[name]) view.set(name, now());
    const hash = `${view}` && `#${view}`;
    if (hash === written) return;
    written = hash;
    history.replaceState(null, "", hash || location.pathname + location.search);
  }

  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(write, 150); // browsers limit how often an address may change
  };
  for (const kind of ["input", "change"]) document.addEventListener(kind, later);
  addEventListener("hashchange", () => {
    written = location.hash;
    if (!location.hash.includes("=")) return;
    read();
    update();
  });
  if (location.hash.includes("=")) read();
}

function followWindow(redraw, prepare) {
  darkScheme.addEventListener("change", redraw);
  let drawnWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== drawnWidth) redraw(); // a phone's bars come and go and change the height alone
    drawnWidth = innerWidth;
  });
  addEventListener("beforeprint", () => {
    document.documentElement.setAttribute("data-printing", "");
    prepare();
    redraw();
  });
  addEventListener("afterprint", () => {
    document.documentElement.removeAttribute("data-printing");
    redraw();
  });
  // The chart library comes last, so that the numbers do not wait for it.
  addEventListener("DOMContentLoaded", redraw);
}
