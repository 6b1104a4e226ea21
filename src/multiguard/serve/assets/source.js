// Where images come from: a file, the clipboard, an example, the camera.
const drop = byId("drop");
const file = byId("file");
const first = (files) => [...files].find((each) => each.type.startsWith("image/")) ?? files[0];

file.addEventListener("change", () => {
  if (file.files.length) predict(file.files[0]);
  file.value = ""; // the same file may be chosen again
});
for (const kind of ["dragenter", "dragover"]) {
  addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
}
for (const kind of ["dragleave", "dragend", "drop"]) addEventListener(kind, () => drop.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  const given = first(event.dataTransfer.files);
  if (given) predict(given);
  else showError(new Error("that is not a file; save the image first, then drop the file"));
});
addEventListener("paste", (event) => {
  const given = first(event.clipboardData.files);
  if (given) predict(given);
});
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", async () => {
    try {
      const response = await fetch(`examples/${button.dataset.example}`);
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      await predict(await response.blob());
    } catch (error) {
      showError(error);
    }
  });
}

const video = byId("video");
function closeCamera() {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  byId("camera").hidden = true;
}
byId("camera-open").addEventListener("click", async () => {
  showError(null);
  try {
    if (!navigator.mediaDevices) throw new Error("a browser gives the camera to this machine's own pages or over https only; choose a photo instead");
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    byId("camera").hidden = false;
    await video.play();
    byId("camera-take").focus();
  } catch (error) {
    closeCamera();
    showError(error.name === "Error" ? error : new Error(`the camera cannot be used (${error.name}); choose a photo instead`));
  }
});
byId("camera-close").addEventListener("click", closeCamera);
byId("camera-take").addEventListener("click", () => {
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  closeCamera();
  canvas.toBlob((blob) => predict(blob), "image/jpeg", 0.92);
});
