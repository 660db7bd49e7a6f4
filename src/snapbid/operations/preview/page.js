// Gives each player the document that its frame has, once it is there.
addEventListener("message", (event) => {
  for (const frame of document.querySelectorAll("iframe.player"))
    if (frame.contentWindow === event.source)
      frame.contentWindow.postMessage({ ...frame.dataset }, "*");
});
