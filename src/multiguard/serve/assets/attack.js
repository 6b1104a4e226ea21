// The attack: original, perturbation and result side by side, for the classifier as it is and for the smoothed one.
const PARTS = { search: "the first radius that changes a label", bare: "The classifier as it is", smoothed: data.promise ? "The calibrated classifier" : "The smoothed classifier" };
const METHODS = { pgd: "Projected gradient descent", random: "A random search (the model has no gradients)" };

function figure(uri, size, caption, ...rest) {
  const image = element("img", { alt: caption });
  showImage(image, uri, size);
  return element("figure", {}, image, element("figcaption", {}, caption), ...rest);
}

function labelList(labels, proved, classOf) {
  const items = labels.map((each) => {
    const names = [proved.includes(each.index) ? "proved" : null, classOf(each)].filter(Boolean).join(" ");
    const often = each.often === undefined ? [] : [` ${Math.round(100 * each.often)} %`];
    return element("li", { class: names || null }, each.label, ...often.map((text) => element("small", {}, text)));
  });
  return element("ul", {}, ...(items.length ? items : [element("li", {}, "no label")]));
}

class Attack {
  // Without a radius the server looks for the first one that changes the classifier without noise.
  start(radius) {
    byId("attack").hidden = false;
    byId("attack-words").textContent = "";
    byId("attacked").replaceChildren();
    byId("attack-status").textContent = "the attack begins";
    byId("attack-progress").style.width = "0";
    byId("attack-heading").textContent = radius === null ? "Attack" : `Attack with R = ${gridText(radius)}`;
    byId("attack-heading").focus();
  }

  begin(message, run) {
    this.message = message;
    this.size = run.image;
    this.began = true;
    byId("attack-heading").textContent = `Attack with R = ${gridText(message.radius)}`;
    const place = data.grid.indexOf(message.radius);
    if (place >= 0) moveTo(place);
    byId("attack-words").textContent = `${METHODS[message.method]} looks among the perturbations that are allowed (${message.threat}) for one that changes as many labels as possible, once against each classifier. What it finds is shown, also if it is nothing; that it finds nothing proves nothing.`;
  }

  progress({ part, done }) {
    const share = part === "smoothed" ? 0.3 + 0.7 * done : 0.3 * done;
    byId("attack-progress").style.width = `${100 * share}%`;
    byId("attack-status").textContent = done === 1 && part === "smoothed" ? "fresh draws evaluate what was found" : `${part === "search" ? "looking for" : "attacking:"} ${PARTS[part].toLowerCase()}`;
  }

  show(part, found) {
    const smoothed = part === "smoothed";
    const proved = smoothed ? found.proved : [];
    const [before, after] = [found.before, found.after].map((labels) => labels.map((each) => (smoothed ? { ...each, often: each.score } : each)));
    const stays = (each) => after.some((other) => other.index === each.index);
    const came = after.filter((each) => !before.some((other) => other.index === each.index));
    const gone = before.filter((each) => !stays(each));
    const middle = `perturbation × ${found.factor}, ${data.attacker} ${data.whole ? found.norm : (Math.ceil(1000 * found.norm) / 1000).toFixed(3)}`;
    const missing = smoothed ? found.proved.filter((index) => !found.after.some((each) => each.index === index)) : [];
    const flipped = proved.length ? missing.length : gone.length || came.length;
    const root = element("article", { class: `attacked ${flipped ? "flipped" : "kept"}` },
      element("h3", {}, PARTS[part]), element("p", { class: "outcome" }, ...this.words(part, found, missing, gone, came)));
    if (found.norm > 0) {
      root.append(element("div", { class: "three" },
        figure(this.message.original, this.size, "original", labelList(before, proved, (each) => (stays(each) ? null : "gone"))),
        figure(found.perturbation, this.size, middle),
        figure(found.result, this.size, "result", labelList(after, proved, (each) => (came.includes(each) ? "came" : null)))));
    }
    root.dataset.part = part;
    byId("attacked").append(root);
  }

  // What changed; of the smoothed classifier first what was proved.
  words(part, found, missing, gone, came) {
    const names = (labels) => listed(labels.map((each) => each.label));
    const changes = [...(gone.length ? [`lost ${names(gone)}`] : []), ...(came.length ? [`gained ${names(came)}`] : [])].join(", ");
    const change = found.norm === 0 ? "No perturbation that it tried was better than none." : changes ? `It ${changes}.` : "No label changed.";
    const estimate = part === "bare" ? "" : ` By ${found.draws} fresh draws, an estimate.`;
    if (part === "bare" || !found.proved.length) return [element("b", {}, change), part === "bare" ? (changes ? "" : " The attack failed.") : ` No label alone was proved at this R.${estimate}`];
    return [element("b", {}, this.proofWords(found, missing)), ` ${change}${estimate}`];
  }

  proofWords(found, missing) {
    const all = { 1: "The label", 2: "Both labels" }[found.proved.length] ?? `All ${found.proved.length} labels`;
    if (!missing.length) return `${all} proved at this R (✓) stayed.`;
    const names = listed(missing.map(nameOf));
    return found.contradicted ? `The fresh draws contradict the proof about ${names}: a proof is wrong with a probability of at most ${data.alpha} per run.` : `${names} is proved to stay; these draws are too few to decide.`;
  }

  done(reason) {
    byId("attack-progress").style.width = "100%";
    byId("attack-status").textContent = reason === "attack" ? "the attack is over" : "";
  }
}
