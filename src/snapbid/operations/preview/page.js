// Sends each player the document in its frame's data attributes once it is ready.
addEventListener("message", (event) => {
  for (const frame of document.querySelectorAll("iframe.player"))
    if (frame.contentWindow === event.source)
      frame.contentWindow.postMessage({ ...frame.dataset }, "*");
});
