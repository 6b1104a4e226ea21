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
  byId("more").disabled = running || !answer.run;
  byId("attack-it").disabled = running || !answer.run || !answer.message;
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
byId("attack-it").addEventListener("click", () => {
  const radius = currentRadius();
  if (radius === 0) return showError(new Error("a perturbation of norm 0 changes nothing; move the slider to a larger radius"));
  attack.start(radius);
  return follow(`${post("attack")}?radius=${radius}`, {}, true);
});
slider.addEventListener("input", () => {
  state.index = Number(slider.value);
  answer.update();
});
addEventListener("pagehide", () => current?.abort());
for (const tick of document.querySelectorAll(".ticks span")) {
  tick.textContent = gridText(data.grid[Number(tick.dataset.index)]);
  tick.style.setProperty("--position", tick.dataset.index / (data.grid.length - 1));
}
state.index = Number(slider.value);
answer.update();
setRunning(false);
