// Reads /ops/data every two seconds and writes it into the page. Null is unknown, shown as a dash.
// Text goes in as text: names of SSPs and campaigns are never read as HTML.
"use strict";

const EVERY_MS = 2000;
const BIDS_NOTHING = new Set(["bid", "no_campaign", "currency", "limited", "long_id", "no_media",
  "floor_currency", "private_auction", "taken"]);
const DASH = "–";
const KINDS = ["win", "billing", "loss"];
const at = (id) => document.getElementById(id);

// -- numbers as text

function number(value, digits) {
  if (value === null || value === undefined) return DASH;
  const shown = digits ?? (value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value) ? 1 : 0);
  return value.toLocaleString("en-US", { minimumFractionDigits: shown, maximumFractionDigits: shown });
}

function share(value) {
  if (value === null || value === undefined) return DASH;
  return value > 0 && value < 0.001 ? "<0.1%" : `${number(value * 100, 1)}%`;
}

const ratio = (part, whole) => (part === null || part === undefined || !whole ? null : part / whole);

function usd(value) {
  if (value === null || value === undefined) return DASH;
  return `$${number(value, value !== 0 && Math.abs(value) < 1 ? 4 : 2)}`;
}

function seconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0";
  if (value < 0.001) return `${number(value * 1e6, 0)} µs`;
  if (value < 1) return `${number(value * 1000, value < 0.1 ? 1 : 0)} ms`;
  if (value < 120) return `${number(value, 1)} s`;
  return value < 7200 ? `${number(value / 60, 0)} min` : `${number(value / 3600, 0)} h`;
}

function bytes(value) {
  if (!value) return "0";
  return value < 1048576 ? `${number(value / 1024, 1)} KiB` : `${number(value / 1048576, 1)} MiB`;
}

// -- elements

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Fills a table. A cell is text, [text, class] or an element; the first cell of a row is its heading.
// On a phone each row becomes a list, labelled with the columns' names.
function table(id, head, rows, empty) {
  const cell = (name, content) => {
    const made = element(name);
    if (content instanceof Element) made.append(content);
    else [made.textContent, made.className] = Array.isArray(content) ? content : [content, ""];
    return made;
  };
  const more = (row) => {  // a row's details, in a line of their own
    const made = element("tr", undefined, "more");
    const own = element("td");
    own.colSpan = row.length;
    own.append(row.more);
    made.append(own);
    return made;
  };
  const line = (row) => {
    const made = element("tr");
    row.forEach((content, index) => {
      const own = cell(index ? "td" : "th", content);
      if (!index) own.scope = "row";
      else if (head) own.dataset.label = head[index];
      made.append(own);
    });
    return made;
  };
  const parts = [];
  if (head && rows.length) {
    const top = element("tr");
    top.append(...head.map((name) => {
      const made = cell(name ? "th" : "td", name);
      if (name) made.scope = "col";
      return made;
    }));
    const made = element("thead");
    made.append(top);
    parts.push(made);
  }
  const body = element("tbody");
  body.append(...rows.flatMap((row) => (row.more ? [line(row), more(row)] : [line(row)])));
  if (!rows.length) {
    const none = element("tr");
    none.append(element("td", empty, "none"));
    body.append(none);
  }
  at(id).replaceChildren(...parts, body);
  at(id).className = head ? "listed" : "pairs";
}

function bar(part, whole, text) {
  const made = element("span");
  const known = ratio(part, whole);
  if (known !== null) {
    const box = element("span", undefined, known >= 0.999 ? "share full" : "share");
    const fill = element("i");
    fill.style.width = `${Math.min(Math.max(known, 0), 1) * 100}%`;
    box.append(fill);
    made.append(text, box);
  } else {
    made.append(text);
  }
  return made;
}

// -- parts of the page

function stores(data) {
  const pill = (name, up) => {
    const [word, kind] = up === null ? ["unknown", "none"] : up ? ["up", "good"] : ["unavailable", "bad"];
    return element("li", `${name} ${word}`, kind);
  };
  const behind = data.drain_behind_s;
  const drain = data.drain_waiting === null ? ["unknown", "none"]
    : behind === null ? ["never ran", "bad"]
    : behind > 60 ? [`${seconds(behind)} behind`, "bad"] : ["up to date", "good"];
  const gone = data.unavailable.length;
  const redis = gone ? element("li", `Redis without ${gone} of ${data.shards} shards`, "bad")
    : pill("Redis", data.redis);
  at("stores").replaceChildren(redis, pill("PostgreSQL", data.warehouse),
    element("li", `drain ${drain[0]}`, drain[1]));
  const { machine, version, started_at: started, workers, port } = data.about;
  at("about").textContent = `${machine}, port ${port}, version ${version}, `
    + `${workers} worker${workers === 1 ? "" : "s"}, up ${seconds(data.at - started)}`;
}

const clock = (moment) => `${new Date(moment * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;

function verdict(data) {
  const { state, since, causes, note } = data.verdict;
  at("verdict").className = `wide ${state.replace(" ", "-")}`;
  const said = `${state[0].toUpperCase()}${state.slice(1)} since ${clock(since)}`;
  if (at("state").textContent !== said) at("state").textContent = said;  // announced once
  at("note").hidden = !note;
  at("note").textContent = note || "";
  at("causes").replaceChildren(...causes.map((cause) => {
    const made = element("li");
    const when = element("span", ` since ${clock(cause.since)}`, "none");
    const remedy = element("span", `To do: ${cause.remedy}`, "remedy");
    made.append(element("b", cause.text, cause.stops ? "bad" : "fair"), when, remedy);
    return made;
  }));
}

function tiles(data) {
  const now = data.now || {};
  const whole = data.latency.find((one) => one.step === "whole");
  const [p50, , p99] = quantiles(whole, data.quantiles);
  const behind = data.drain_behind_s;
  const shown = [
    ["requests/s", number(now.requests)],
    ["bid rate", share(now.bid_share)],
    ["p50", p50],
    ["p99", p99],
    ["notices/s", number(now.notices)],
    ["events/s", number(now.events)],
    ["spent today", usd(data.spent_today)],
    ["drain behind", seconds(behind), behind > 60 ? "bad" : ""],
    ["5xx, last minute", number(data.errors), data.errors ? "bad" : ""],
  ];
  at("tiles").replaceChildren(...shown.map(([label, value, kind]) => {
    const tile = element("div");
    tile.append(element("b", value, kind), element("span", label));
    return tile;
  }));
}

let shown = "5 minutes";

function charts(data) {
  at("spans").replaceChildren(...Object.keys(data.spans).map((name) => {
    const made = element("button", name);
    made.type = "button";
    made.setAttribute("aria-pressed", name === shown);
    made.addEventListener("click", () => { shown = name; charts(data); at("spans").querySelector("[aria-pressed=true]").focus(); });
    return made;
  }));
  const span = data.spans[shown];
  const points = data.trends[shown];
  const held = (id) => at(id).dataset.held;
  if (!held("rates")) chart(at("rates"), {
    title: "per second", span, least: 1, format: (value) => number(value),
    lines: [{ name: "requests", kind: "blue" }, { name: "bids", kind: "green" }, { name: "5xx", kind: "red" }],
    points: points.map(([age, requests, bids, errors]) => [age, requests, bids, errors]),
  });
  if (!held("delays")) chart(at("delays"), {
    title: "latency", span, least: 0.001, format: seconds,
    lines: [{ name: "p50", kind: "blue" }, { name: "p99", kind: "amber" }],
    points: points.map(([age, , , , p50, p99]) => [age, p50, p99]),
  });
}

function quantiles(row, wanted) {
  if (!row || !row.seconds) return wanted.map(() => DASH);
  return row.seconds.map((value) => (value === null ? "over the scale" : seconds(value)));
}

function latency(data) {
  const head = ["", ...data.quantiles.map((q) => `p${+(q * 100).toFixed(1)}`)];
  const rows = data.latency.map((one) => [one.step, ...quantiles(one, data.quantiles)]);
  table("latency", head, rows, "no requests yet");
}

function notices(data) {
  const columns = ["counted", "late", "duplicate", "unknown", "unsigned", "spooled"];
  const rows = KINDS.map((kind) => {
    const found = data.notices[kind] || {};
    return [kind, ...columns.map((name) => {
      const kindOf = found[name] && name !== "counted" ? "fair" : "";
      return [number(found[name] || 0), kindOf];
    })];
  });
  table("notices", ["", ...columns], rows, "");
}

function ssps(data) {
  const head = ["SSP", "requests", "bid rate", "late or failed, 15 min", "answers today", "wins", "wins per answer", "impressions",
    "render rate", "spent today"];
  const rows = data.ssps.map((one) => [
    one.ssp, number(one.requests), share(ratio(one.outcomes.bid || 0, one.requests)),
    [`${share(one.unanswered[0])}, ${share(one.unanswered[1])}`, ["", "fair", "bad"][one.guard]],
    number(one.bids_today), number(one.wins_today), number(ratio(one.wins_today, one.bids_today), 2),
    number(one.imps_today), share(ratio(one.imps_today, one.wins_today)), usd(one.spend_today),
  ]);
  table("ssps", head, rows, data.ssps_known === 0 ? "no SSP is registered" : "unknown");
  const active = data.ssps.filter((one) => one.requests);
  const reasons = [...new Set(active.flatMap((one) => Object.keys(one.outcomes)))]
    .filter((reason) => reason !== "bid").sort();
  table("reasons", ["SSP", ...reasons.map(said)],
    reasons.length ? active.map((one) => [one.ssp, ...reasons.map((reason) => {
      const known = one.outcomes[reason];
      return [known ? share(known / one.requests) : DASH, known && !BIDS_NOTHING.has(reason) ? "bad" : ""];
    })]) : [], "no request without a bid");
  const worst = (reason) => active.reduce((most, one) =>
    ((one.outcomes[reason] || 0) > (most.outcomes[reason] || 0) ? one : most));
  renew("meanings", reasons.filter((reason) => data.meanings[reason]).map((reason) =>
    [reason, ...data.meanings[reason], worst(reason).ssp]), (known) => known.flatMap(
    ([reason, means, remedy, ssp]) => {
      const meaning = element("dd", `${means}. To do: ${remedy.replace(/\bSSP\b/g, ssp)}.`);
      if (LEADS[reason]) {
        const [section, title] = LEADS[reason];
        const link = element("a", title);
        link.href = `#${section}`;
        meaning.append(" See ", link, ".");
      }
      return [element("dt", said(reason)), meaning];
    }));
}

const said = (reason) => reason.replaceAll("_", " ");

// Links from a reason to the section of this page that explains it.
const LEADS = {
  no_campaign: ["suspensions", "suspended creatives"], limited: ["budgets", "budgets"],
  late: ["latency", "latency"], overload: ["latency", "latency"], cut_short: ["latency", "latency"],
  store_down: ["behind", "what is behind the bids"],
};

// Refills an element only if its content changed, so that links keep the focus.
const shownNow = {};

function renew(id, content, make) {
  const text = JSON.stringify(content);
  if (shownNow[id] === text) return;
  shownNow[id] = text;
  at(id).replaceChildren(...make(content));
}

// -- campaigns: each unfolds to its limits, its suspended creatives and useful commands

const opened = new Set();

function opener(campaign, data) {
  const made = element("button", campaign, "opener");
  made.type = "button";
  made.dataset.campaign = campaign;
  made.setAttribute("aria-expanded", opened.has(campaign));
  made.addEventListener("click", () => {
    if (!opened.delete(campaign)) opened.add(campaign);
    budgets(data);
    unlimited(data);
  });
  return made;
}

function details(one, data) {
  const made = element("ul", undefined, "details");
  const left = (budget, spent) => usd(Math.max(budget - spent - one.held, 0));
  if (one.state) made.append(element("li", `${one.state}: ${data.states[one.state]}.`));
  if (one.daily != null) made.append(element("li", `Left of the day: ${left(one.daily, one.spent_today)}.`));
  if (one.total != null) made.append(element("li", `Left of the total: ${left(one.total, one.spent)}.`));
  for (const each of (data.suspensions || []).filter((each) => each.campaign === one.campaign)) {
    made.append(element("li", `Creative ${each.creative} is suspended at ${each.ssp} until ${clock(each.until)}: `
      + `loss reason ${each.reason}, ${each.means}.`));
  }
  const ssp = data.ssps.length ? data.ssps[0].ssp : "SSP";
  for (const [what, command] of [
    ["All of it:", `snapbid campaign show ${quoted(one.campaign)}`],
    ["Why not this request:", `snapbid explain ${ssp} request.json --campaign ${quoted(one.campaign)}`],
  ]) {
    const line = element("li", `${what} `);
    line.append(element("code", command));
    made.append(line);
  }
  return made;
}

// Quotes a word of a shell command.
const quoted = (text) => (/^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function budgets(data) {
  at("budgeted").textContent = data.budgeted === null ? "how many there are is unknown"
    : `${number(data.budgets ? data.budgets.length : 0)} of ${number(data.budgeted)} active campaigns with a budget`;
  const kinds = { open: "good", paced: "fair", spent: "bad" };
  campaigns("budgets", ["campaign", "state", "pacing", "spent / daily", "spent / total", "held"], data, (one) => [
    [one.state, kinds[one.state]], one.pacing,
    bar(one.spent_today, one.daily, `${usd(one.spent_today)} / ${usd(one.daily)}`),
    bar(one.spent, one.total, `${usd(one.spent)} / ${usd(one.total)}`), usd(one.held),
  ], "no campaign has a budget");
}

function unlimited(data) {
  campaigns("unlimited", ["campaign", "status", "bids", "wins", "impressions", "spent today"], data, (one) => [
    one.status, number(one.bids_today), number(one.wins_today), number(one.imps_today), usd(one.spent_today),
  ], "none has bid today");
}

// A table of campaigns that unfold; it keeps the focus, and is not redrawn while text is selected.
function campaigns(id, head, data, cells, empty) {
  const chosen = document.getSelection();
  if (!chosen.isCollapsed && at(id).contains(chosen.anchorNode)) return;
  const active = document.activeElement;
  const focused = at(id).contains(active) ? active.dataset.campaign : undefined;
  const rows = (data[id] || []).map((one) => Object.assign(
    [opener(one.campaign, data), ...cells(one)], opened.has(one.campaign) ? { more: details(one, data) } : {}));
  table(id, head, rows, data[id] === null ? "unknown" : empty);
  if (focused !== undefined) {
    [...at(id).querySelectorAll("button")].find((one) => one.dataset.campaign === focused)?.focus();
  }
}

function converted(data) {
  const all = data.converted && data.converted.length ? [...data.converted, { campaign: "all campaigns", ...data.converted_today }] : [];
  const rows = all.map((one) => [
    one.campaign, number(one.conversions), number(one.registrations), number(one.first_deposits),
    usd(one.net_deposits), usd(one.gross_revenue),
  ]);
  const head = ["campaign", "conversions", "registrations", "first deposits", "net deposits", "gross revenue"];
  table("converted", head, rows, data.converted === null ? "unknown" : "no event counts for a click today");
}

function suspensions(data) {
  at("suspended").textContent = data.suspended ? `rejected by an SSP, ${number(data.suspensions.length)} of ${number(data.suspended)}` : "";
  const rows = (data.suspensions || []).map((one) => [
    one.campaign, one.creative, one.ssp, [`${one.reason} ${one.means}`, "fair"], number(one.losses), clock(one.until),
  ]);
  table("suspensions", ["campaign", "creative", "SSP", "loss reason", "losses", "until"], rows,
    data.suspended === null ? "unknown" : "no creative is suspended");
}

function events(data) {
  const codes = Object.entries(data.event_codes).sort((a, b) => b[1] - a[1]);
  table("events", null, codes.map(([code, count]) =>
    [code, [number(count), code === "accepted" || code === "valid" ? "" : "fair"]]), "no requests");
}

function behind(data) {
  table("behind", null, [
    ["counters waiting for the drain", number(data.drain_waiting)],
    ["differences in the last audit", [
      number(data.audit_differences), data.audit_differences ? "bad" : ""]],
    ["last complete audit", data.audit_age_s === null ? DASH : `${seconds(data.audit_age_s)} ago`],
    ["event requests waiting for it, in batches", number(data.event_queue)],
    ["oldest of these", seconds(data.event_queue_age_s)],
    ["held by bids, of the budgets above", usd(data.held)],
    ["notices on disk (Redis unavailable)", [bytes(data.spool_bytes), data.spool_bytes ? "fair" : ""]],
    ...(data.auction_log_bytes === null ? [] : [
      ["auction log, before its writer", bytes(data.auction_log_bytes)],
      ["rows lost to the auction log, last minute", [
        number(data.auction_log_lost), data.auction_log_lost ? "bad" : ""]]]),
    ["campaigns", number(data.campaigns)],
    ["catalog published", data.catalog_age_s === null ? DASH : `${seconds(data.catalog_age_s)} ago`],
    ["last up to date with the warehouse", [
      data.catalog_checked_s === null ? DASH : `${seconds(data.catalog_checked_s)} ago`,
      data.catalog_checked_s > 90 ? "bad" : ""]],
  ], "");
}

// -- reading

let last = null;

function showUpdate(wrong) {
  const time = last ? new Date(last * 1000).toISOString().slice(11, 19) : null;
  at("updated").textContent = wrong
    ? `no figures ${time ? `since ${time} UTC` : "yet"}: ${wrong}` : `${time} UTC`;
  at("updated").className = wrong ? "bad" : "";
  document.body.className = wrong ? "stale" : "";
}

async function read() {
  try {
    const answer = await fetch("/ops/data", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const data = await answer.json();
    last = data.at;
    for (const part of [stores, verdict, tiles, charts, latency, notices, ssps, budgets, unlimited, converted, suspensions, events, behind]) part(data);
    showUpdate(null);
  } catch (error) {
    showUpdate(error instanceof TypeError ? "the server does not answer" : error.message);
  }
}

async function follow() {
  if (!document.hidden) await read();
  setTimeout(follow, EVERY_MS);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
follow();
