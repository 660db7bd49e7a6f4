// Plays one VAST document, which the enclosing page sends as {vast} or {address}. The library comes
// before this script and defines VASTClient and VASTParser. No event is tracked.
const main = document.querySelector("main");

function add(parent, name, attributes = {}, text = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

const say = (text) => add(main, "p", {}, text);

function showLinear(creative) {
  const files = creative.mediaFiles.filter((file) => !file.apiFramework && file.fileURL);
  const programs = creative.mediaFiles.filter((file) => file.apiFramework);
  if (files.length > 0) {
    const isAudio = files.every((file) => (file.mimeType || "").startsWith("audio/"));
    const player = add(main, isAudio ? "audio" : "video", { controls: "", playsinline: "" });
    const [first] = [...files].sort((one, other) => other.width - one.width);
    if (!isAudio && first.width > 0 && first.height > 0)
      player.style.aspectRatio = `${first.width} / ${first.height}`;
    for (const file of files)
      add(player, "source", { src: file.fileURL, type: file.mimeType || "" });
  }
  for (const program of programs)
    say(`${program.apiFramework}, in players that support it: ${program.fileURL}`);
  const interactive = creative.interactiveCreativeFile;
  if (interactive)
    say(`${interactive.apiFramework || "interactive"} overlay, in players that support it: ` +
      interactive.fileURL);
  const skip = creative.skipDelay;
  say([
    creative.duration >= 0 ? `${creative.duration} s` : "no duration",
    skip === null || skip < 0 ? "not skippable" : `skippable after ${skip} s`,
    `${creative.mediaFiles.length} media files`,
  ].join(", "));
  const click = creative.videoClickThroughURLTemplate;
  if (click && click.url) say(`a click leads to ${click.url}`);
}

function showOverlay(overlay) {
  if (overlay.staticResource) add(main, "img", { src: overlay.staticResource, alt: "overlay" });
  else if (overlay.iframeResource)
    add(main, "iframe", { src: overlay.iframeResource, sandbox: "allow-scripts", title: "overlay" });
  else if (overlay.htmlResource)
    add(main, "iframe", { srcdoc: overlay.htmlResource, sandbox: "allow-scripts", title: "overlay" });
}

function showAds(ads) {
  main.replaceChildren();
  ads.forEach((ad, number) => {
    if (ads.length > 1) add(main, "h1", {}, `Ad ${number + 1} of ${ads.length}`);
    if (ad.errorCode) say(`The wrapped ad cannot be shown: ${ad.errorMessage || ad.errorCode}`);
    for (const creative of ad.creatives) {
      if (creative.type === "linear") showLinear(creative);
      if (creative.type === "nonlinear") creative.variations.forEach(showOverlay);
    }
  });
  if (ads.length === 0) say("There is no ad.");
}

// Asks the ad server only on a click, since it may count the request.
function offer(text, load) {
  main.replaceChildren();
  say(text);
  add(main, "button", { type: "button" }, "Ask the ad server").onclick = () =>
    load().then((response) => showAds(response.ads), (error) => say(String(error)));
}

async function show({ vast, address }) {
  const options = { resolveAll: false, withCredentials: false };
  if (address) {
    offer(`The ad is at ${address}`, () => new VASTClient().get(address, options));
    return;
  }
  const text = new DOMParser().parseFromString(vast, "text/xml");
  const { ads } = await new VASTParser().parseVAST(text, options);
  const wrapped = ads.find((ad) => ad.VASTAdTagURI);
  if (wrapped)
    offer(`A wrapper; the ad is at ${wrapped.VASTAdTagURI}`, () =>
      new VASTClient().parseVAST(text, options));
  else showAds(ads);
}

addEventListener("message", (event) => {
  if (event.source === parent)
    show(event.data).catch((error) => {
      main.replaceChildren();
      say(`vast-client-js cannot play it: ${error}`);
    });
});
parent.postMessage("ready", "*");
