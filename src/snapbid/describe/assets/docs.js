// Adds to the pages of the API what needs a script: tabs, copying, search, and requests to try.
// Text goes in as text; nothing is kept but the language that was chosen last.
"use strict";

const LANGUAGE = "snapbid-docs-language";
const MOST = 30;  // hits shown
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function remembered() {
  try { return localStorage.getItem(LANGUAGE); } catch { return null; }
}

function remember(language) {
  try { localStorage.setItem(LANGUAGE, language); } catch { /* private windows may refuse */ }
}

// -- tabs: one language is shown, the same everywhere

function choose(language) {
  for (const tabs of all(".tabs")) {
    for (const tab of all("[role=tab]", tabs)) {
      const chosen = tab.textContent === language;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
  }
}

function makeTabs(tabs, number) {
  const list = element("div", undefined, "tablist");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Language");
  for (const panel of all("[data-language]", tabs)) {
    const language = panel.dataset.language;
    const tab = element("button", language);
    tab.type = "button";
    tab.setAttribute("role", "tab");
    tab.id = `tab-${number}-${language}`;
    panel.id = `panel-${number}-${language}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.setAttribute("aria-controls", panel.id);
    tab.addEventListener("click", () => { remember(language); choose(language); });
    panel.querySelector(".language").hidden = true;
    list.append(tab);
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const buttons = all("[role=tab]", list);
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.click();
    next.focus();
    event.preventDefault();
  });
  tabs.prepend(list);
}

// -- copying

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea");  // without HTTPS there is no clipboard but this one
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("refused");
}

function makeCopy(block) {
  const box = element("div", undefined, "copied");
  const button = element("button", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await copy(block.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.replaceWith(box);
  box.append(block, button);
}

// -- links into what is folded

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return false;
  for (let outer = target; outer; outer = outer.parentElement) {
    if (outer.tagName === "DETAILS") outer.open = true;
  }
  target.scrollIntoView();
  return true;
}

// -- search

function makeSearch(box) {
  const [input, state, list] = ["input", "p", "ul"].map((name) => box.querySelector(name));
  let entries = null;
  const load = async () => {
    entries = entries || fetch(box.dataset.source).then((answer) => answer.json());
    return entries;
  };
  const rank = (words, [title, , text]) => {
    const head = title.toLowerCase();
    const whole = `${head} ${text.toLowerCase()}`;
    if (!words.every((word) => whole.includes(word))) return 0;
    const last = head.split(".").pop();
    if (words.some((word) => last === word)) return 4;
    if (words.some((word) => last.startsWith(word))) return 3;
    return words.every((word) => head.includes(word)) ? 2 : 1;
  };
  const show = async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let hits = [];
    try {
      if (words.length) hits = (await load()).map((entry) => [rank(words, entry), entry]);
    } catch {
      entries = null;
      state.textContent = "The server does not answer";
      return;
    }
    hits = hits.filter(([score]) => score).sort(([a], [b]) => b - a);
    state.textContent = !words.length ? "" : hits.length > MOST
      ? `${MOST} of ${hits.length} results` : `${hits.length} result${hits.length === 1 ? "" : "s"}`;
    list.replaceChildren(...hits.slice(0, MOST).map(([, [title, address, text]]) => {
      const item = element("li");
      const link = element("a", title);
      link.href = address;
      link.append(element("span", text.length > 90 ? `${text.slice(0, 90)}…` : text));
      item.append(link);
      return item;
    }));
  };
  input.addEventListener("focus", () => load().catch(() => { entries = null; }), { once: true });
  input.addEventListener("input", show);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { input.value = ""; show(); }
  });
  list.addEventListener("click", () => setTimeout(() => { input.value = ""; show(); reveal(); }));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, textarea")) return;
    event.preventDefault();
    input.focus();
  });
  box.hidden = false;
}

// -- requests to try, sent to the server that the page is from

function request(form) {
  const { method, path, headers, sets } = form.dataset;
  const sent = { method, headers: JSON.parse(headers), cache: "no-store", credentials: "omit" };
  const query = new URLSearchParams();
  let target = path;
  for (const input of all("input", form)) {
    const { name, value } = input;
    if (input.dataset.in === "path") target = target.replace(`{${name}}`, encodeURIComponent(value));
    else if (value && input.dataset.in === "query") query.set(name, value);
    else if (value) sent.headers[name] = (input.dataset.before || "") + value;
  }
  const area = form.querySelector("textarea");
  if (area) {
    const body = JSON.parse(area.value);
    const members = Object.entries(JSON.parse(sets));
    if (members.length && (typeof body !== "object" || body === null || Array.isArray(body))) {
      throw new SyntaxError("it must be an object");
    }
    for (const [name, value] of members) body[name] = value;
    sent.body = JSON.stringify(body);
  }
  return [query.size ? `${target}?${query}` : target, sent];
}

async function send(form) {
  const outcome = form.querySelector(".outcome");
  const say = (text, className) => outcome.replaceChildren(element("p", text, className));
  let target, sent;
  try {
    [target, sent] = request(form);
  } catch (error) {
    say(`The body is not sent: ${error.message}`, "s4");
    return;
  }
  say("sending …");
  const start = performance.now();
  try {
    const answer = await fetch(target, sent);
    const type = answer.headers.get("content-type") || "";
    const text = type.startsWith("image/") ? "" : await answer.text();
    const took = Math.round(performance.now() - start);
    say(`${answer.status} ${answer.statusText} in ${took} ms`, `s${String(answer.status)[0]}`);
    const block = element("pre", shown(text) || "no body");
    outcome.append(block);
    makeCopy(block);
  } catch {
    say("The server does not answer", "s5");
  }
}

function shown(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function makeForm(form) {
  const fields = element("details", undefined, "fold");
  fields.append(element("summary", "Try it"));
  form.querySelector("h3").remove();
  form.replaceWith(fields);
  fields.append(form);
  form.hidden = false;
  form.addEventListener("submit", (event) => { event.preventDefault(); send(form); });
}

// -- the contents, folded on a phone

function makeMenu(button) {
  const narrow = matchMedia("(max-width: 800px)");
  const contents = document.getElementById("contents");
  const fold = (folded) => {
    contents.hidden = folded;
    button.setAttribute("aria-expanded", !folded);
  };
  const fit = () => { button.hidden = !narrow.matches; fold(narrow.matches); };
  button.addEventListener("click", () => fold(!contents.hidden));
  contents.addEventListener("click", (event) => { if (narrow.matches && event.target.closest("a")) fold(true); });
  narrow.addEventListener("change", fit);
  fit();
}

all(".tabs").forEach(makeTabs);
choose(all("[role=tab]").some((tab) => tab.textContent === remembered()) ? remembered() : "curl");
all("pre").forEach(makeCopy);
all("form.try").forEach(makeForm);
makeSearch(document.getElementById("search"));
makeMenu(document.getElementById("menu"));
addEventListener("hashchange", reveal);
reveal();
