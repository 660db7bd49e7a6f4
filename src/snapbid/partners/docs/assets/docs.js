// Shows an OpenAPI document with Scalar. What a visitor sends goes to this server, as a test.
"use strict";

// Requests that would count are sent in a form that counts nothing, whatever was typed.
function harmless({ requestBuilder: request }) {
  const path = request.path.raw;
  request.baseUrl = location.origin;
  if (path.startsWith("/rtb/")) request.method = "HEAD";
  if (path.startsWith("/v3/s2s/")) request.headers.set("X-Test-Mode", "true");
  if (path.endsWith("/bid")) request.body.value = asTest(request.body.value);
}

function asTest(text) {
  try {
    return JSON.stringify({ ...JSON.parse(text), test: 1 });
  } catch {
    return text;  // not JSON: refused in any case
  }
}

Scalar.createApiReference("#reference", {
  url: document.body.dataset.document,
  onBeforeRequest: harmless,
  featuredClients: ["shell/curl", "python/requests", "js/fetch", "go/native"],
  defaultHttpClient: { targetKey: "shell", clientKey: "curl" },
  documentDownloadType: "direct",
  defaultOpenAllTags: true,
  // Nothing is asked of other hosts.
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  agent: { disabled: true },
  mcp: { disabled: true },
});

// Scalar's search field lacks an attribute that a combobox requires.
document.addEventListener("focusin", ({ target }) => {
  if (target.role === "combobox" && !target.ariaExpanded) target.ariaExpanded = "true";
});
