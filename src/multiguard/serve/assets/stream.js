// Requests to the server: server-sent events that answer a POST.
async function* serverEvents(path, options) {
  const response = await fetch(path, { method: "POST", ...options, headers: { Accept: "text/event-stream", ...options.headers } });
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error ?? `the server answered ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const blocks = (rest + part.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [kind, message] = block.split("\n");
      yield [kind.slice("event: ".length), JSON.parse(message.slice("data: ".length))];
    }
  }
}

const answer = new Answer();
const attack = new Attack();
let current = null; // the request under way

function showError(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ? `${error.message[0].toUpperCase()}${error.message.slice(1)}${error.message.endsWith(".") ? "" : "."}` : "";
}

function setRunning(running, attacking = false) {
  answer.running = running && !attacking;
  byId("stop").disabled = !running;
  const complete = data.promise && answer.claims;
  byId("more").disabled = running || !answer.run || complete;
  byId("attack-it").disabled = running || !answer.message || (data.promise && !complete);
  byId("save").disabled = running || !answer.claims;
}

const ENDS = { stopped: "stopped", time: "the time for one request is over", draws: "done" };
const HANDLERS = {
  run: (message) => answer.begin(message),
  draws: (message) => answer.draws(message),
  claims: (message) => answer.claim(message),
  attack: (message) => attack.begin(message, answer.run),
  progress: (message) => attack.progress(message),
  bare: (message) => attack.show("bare", message),
  smoothed: (message) => attack.show("smoothed", message),
};

// One request at a time: a new one ends the one before.
async function follow(path, options = {}, attacking = false) {
  current?.abort();
  const mine = (current = new AbortController());
  const status = byId(attacking ? "attack-status" : "status");
  showError(null);
  setRunning(true, attacking);
  try {
    for await (const [kind, message] of serverEvents(path, { ...options, signal: mine.signal })) {
      if (mine !== current) return;
      if (kind === "error") throw new Error(message.error);
      if (kind === "waiting" && message.ahead) status.textContent = `waiting: ${message.ahead} ${message.ahead === 1 ? "request is" : "requests are"} ahead`;
      if (kind === "done" && attacking) attack.done(message.reason);
      if (kind === "done" && !attacking) status.textContent = `${ENDS[message.reason]}: ${answer.message?.phase === "certify" ? answer.message.draws : 0} draws`;
      HANDLERS[kind]?.(message);
    }
  } catch (error) {
    if (mine !== current || error.name === "AbortError") return;
    status.textContent = "";
    showError(error.name === "TypeError" ? new Error("the server does not answer; is it still running?") : error);
  }
  if (mine === current) {
    current = null;
    setRunning(false);
    answer.update();
  }
}

function predict(image) {
  if (image.size > data.limits.bytes) return showError(new Error(`the file has ${Math.ceil(image.size / 1e6)} MB; the server takes ${data.limits.bytes / 1e6} MB at most`));
  answer.reset();
  attack.began = state.moved = false;
  byId("live").hidden = false;
  byId("drop").classList.add("compact");
  byId("attack").hidden = true;
  return follow("api/predict", { body: image, headers: { "Content-Type": image.type.startsWith("image/") ? image.type : "application/octet-stream" } });
}

const post = (what) => `api/runs/${encodeURIComponent(answer.run.run)}/${what}`;
// Draws end with a last look at what they prove; what waits or attacks just ends.
byId("stop").addEventListener("click", () => {
  byId("stop").disabled = true;
  if (answer.run && answer.running) {
    fetch(post("stop"), { method: "POST" }).catch(showError);
    return;
  }
  current?.abort();
  current = null;
  byId(answer.running ? "status" : "attack-status").textContent = "stopped";
  setRunning(false);
});
byId("more").addEventListener("click", () => follow(post("more")));
// The first attack is at a radius where something happens; later ones, or with a slider that was moved, at the slider's.
byId("attack-it").addEventListener("click", () => {
  const radius = state.moved || attack.began ? currentRadius() : null;
  if (radius === 0) return showError(new Error("a perturbation of norm 0 changes nothing; move the slider to a larger radius"));
  attack.start(radius);
  return follow(`${post("attack")}${radius === null ? "" : `?radius=${radius}`}`, {}, true);
});
function moveTo(index) {
  slider.value = state.index = index;
  answer.update();
}
slider.addEventListener("input", () => {
  state.moved = true;
  moveTo(Number(slider.value));
});
// The page as it is, as one file: without scripts and controls.
byId("save").addEventListener("click", () => {
  const copy = document.documentElement.cloneNode(true);
  for (const each of copy.querySelectorAll("script, noscript, #source, .skip, .actions, .meter, .status, datalist, input, [hidden], .unseen, .scale, [for]")) each.remove();
  copy.querySelector(".dial")?.prepend(`R = ${gridText(currentRadius())}`);
  copy.querySelector("footer").textContent = `Saved ${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC by multiguard ${data.version}. sha256 of the image file: ${answer.run.image.sha256}.`;
  const page = URL.createObjectURL(new Blob([`<!doctype html>\n${copy.outerHTML}`], { type: "text/html" }));
  element("a", { href: page, download: "multiguard-result.html" }).click();
  setTimeout(() => URL.revokeObjectURL(page), 1000);
});
addEventListener("pagehide", () => current?.abort());
for (const tick of document.querySelectorAll(".ticks span")) {
  tick.textContent = gridText(data.grid[Number(tick.dataset.index)]);
  tick.style.setProperty("--position", tick.dataset.index / (data.grid.length - 1));
}
state.index = Number(slider.value);
answer.update();
setRunning(false);
