// Judges VAST documents, a JSON array of texts on stdin, as vast-client-js plays them: an array of
// null, or of why not, on stdout.
import { VASTParser } from "@dailymotion/vast-client";
import { JSDOM } from "jsdom";

const { window } = new JSDOM();
globalThis.window = window;

const hasFile = (creative) =>
  creative.type === "linear" && creative.mediaFiles.some((file) => file.fileURL && file.mimeType);
const hasOverlay = (creative) =>
  creative.type === "nonlinear" &&
  creative.variations.some((each) => each.staticResource || each.iframeResource || each.htmlResource);

async function verdict(text) {
  const document = new window.DOMParser().parseFromString(text, "text/xml");
  if (document.querySelector("parsererror")) return "no XML";
  try {
    const { ads } = await new VASTParser().parseVAST(document, { resolveAll: false });
    if (ads.length === 0) return "no ads";
    for (const ad of ads)
      if (!ad.VASTAdTagURI && !ad.creatives.some((each) => hasFile(each) || hasOverlay(each)))
        return "nothing to show";
    return null;
  } catch (error) {
    return String(error);
  }
}

let input = "";
for await (const chunk of process.stdin) input += chunk;
const verdicts = [];
for (const text of JSON.parse(input)) verdicts.push(await verdict(text));
console.log(JSON.stringify(verdicts));
