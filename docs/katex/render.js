document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const block = element.tagName === "DIV";
    katex.render(element.textContent.trim().slice(2, -2), element, { displayMode: block, throwOnError: false });
  }
});
