// Reads /ops/data every two seconds and writes it into the page. Null is unknown, shown as a dash.
// Text goes in as text: names of SSPs and campaigns are never read as HTML.
"use strict";

const EVERY_MS = 2000;
const BIDS_NOTHING = new Set(["bid", "no_campaign", "currency", "limited", "long_id", "no_media",
  "floor_currency", "private_auction"]);
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

// A table of rows of cells; a cell is text or [text, class] or an element.
function table(id, head, rows, empty) {
  const cells = (name) => (cell) => {
    if (cell instanceof Element) {
      const made = element(name);
      made.append(cell);
      return made;
    }
    return Array.isArray(cell) ? element(name, cell[0], cell[1]) : element(name, cell);
  };
  const lines = (head && rows.length ? [[head, "th"]] : []).concat(rows.map((row) => [row, "td"]));
  if (!rows.length) lines.push([[[empty, "none"]], "td"]);
  at(id).replaceChildren(...lines.map(([row, name]) => {
    const made = element("tr");
    made.append(...row.map(cells(name)));
    return made;
  }));
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
  const one = (name, up) => {
    const [word, kind] = up === null ? ["unknown", "none"] : up ? ["up", "good"] : ["away", "bad"];
    return element("li", `${name} ${word}`, kind);
  };
  at("stores").replaceChildren(one("Redis", data.redis), one("PostgreSQL", data.warehouse));
}

function risks(data) {
  at("risks").hidden = !data.risks.length;
  at("risks").replaceChildren(...data.risks.map((one) => {
    const made = element("p");
    made.append(element("b", `${one.text}. `, one.severity === "weak" ? "fair" : "bad"), `To do: ${one.remedy}.`);
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
    ["drain behind", seconds(behind), behind > 5 ? "bad" : ""],
  ];
  at("tiles").replaceChildren(...shown.map(([label, value, kind]) => {
    const tile = element("div");
    tile.append(element("b", value, kind), element("span", label));
    return tile;
  }));
}

function chart(data) {
  const [width, height, past] = [600, 120, 300];
  const highest = Math.max(1, ...data.series.map(([, requests]) => requests));
  const line = (place, kind) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const points = data.series.map((point) =>
      `${(width * (1 - point[0] / past)).toFixed(1)},${(height - 2 - (height - 6) * point[place] / highest).toFixed(1)}`);
    made.setAttribute("points", points.join(" "));
    made.setAttribute("class", kind);
    return made;
  };
  const grid = [0.25, 0.5, 0.75].map((part) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of [["x1", 0], ["x2", width], ["y1", height * part], ["y2", height * part]]) {
      made.setAttribute(name, value);
    }
    return made;
  });
  at("chart").replaceChildren(...grid, line(1, "requests"), line(2, "bids"));
  at("scale").textContent = `highest ${number(highest)}`;
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
  const columns = ["counted", "late", "duplicate", "unknown", "spooled"];
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
  const head = ["SSP", "requests", "bid rate", "bids today", "wins", "win rate", "impressions",
    "render rate", "spent today"];
  const rows = data.ssps.map((one) => [
    one.ssp, number(one.requests), share(ratio(one.outcomes.bid || 0, one.requests)),
    number(one.bids_today), number(one.wins_today), share(ratio(one.wins_today, one.bids_today)),
    number(one.imps_today), share(ratio(one.imps_today, one.wins_today)), usd(one.spend_today),
  ]);
  table("ssps", head, rows, data.ssps_known === null ? "unknown" : "no SSP is registered");
  const active = data.ssps.filter((one) => one.requests);
  const reasons = [...new Set(active.flatMap((one) => Object.keys(one.outcomes)))]
    .filter((reason) => reason !== "bid").sort();
  table("reasons", ["SSP", ...reasons.map((reason) => reason.replaceAll("_", " "))],
    reasons.length ? active.map((one) => [one.ssp, ...reasons.map((reason) => {
      const known = one.outcomes[reason];
      return [known ? share(known / one.requests) : DASH, known && !BIDS_NOTHING.has(reason) ? "bad" : ""];
    })]) : [], "no request without a bid");
}

function budgets(data) {
  at("budgeted").textContent = data.budgeted === null ? "how many there are is unknown"
    : `${number(data.budgets ? data.budgets.length : 0)} of ${number(data.budgeted)} active campaigns with a budget`;
  const kinds = { open: "good", paced: "fair", spent: "bad" };
  const rows = (data.budgets || []).map((one) => [
    one.campaign, [one.state, kinds[one.state]], one.pacing,
    bar(one.spent_today, one.daily, `${usd(one.spent_today)} / ${usd(one.daily)}`),
    bar(one.spent, one.total, `${usd(one.spent)} / ${usd(one.total)}`), usd(one.held),
  ]);
  table("budgets", ["campaign", "state", "pacing", "spent / daily", "spent / total", "held"], rows,
    data.budgets === null ? "unknown" : "no campaign has a budget");
}

function events(data) {
  const codes = Object.entries(data.event_codes).sort((a, b) => b[1] - a[1]);
  table("events", null, codes.map(([code, count]) =>
    [code, [number(count), code === "accepted" || code === "valid" ? "" : "fair"]]), "no requests");
}

function behind(data) {
  table("behind", null, [
    ["counters waiting for the drain", number(data.drain_waiting)],
    ["event requests waiting for it, in batches", number(data.event_queue)],
    ["oldest of these", seconds(data.event_queue_age_s)],
    ["held by bids, of the budgets above", usd(data.held)],
    ["notices on disk (Redis away)", [bytes(data.spool_bytes), data.spool_bytes ? "fair" : ""]],
    ["campaigns", number(data.campaigns)],
    ["catalog published", data.catalog_age_s === null ? DASH : `${seconds(data.catalog_age_s)} ago`],
    ["compared with the warehouse", [
      data.catalog_checked_s === null ? DASH : `${seconds(data.catalog_checked_s)} ago`,
      data.catalog_checked_s > 90 ? "bad" : ""]],
  ], "");
}

// -- reading

let last = null;

function tell(wrong) {
  const clock = last ? new Date(last * 1000).toISOString().slice(11, 19) : null;
  at("told").textContent = wrong
    ? `no figures ${clock ? `since ${clock} UTC` : "yet"}: ${wrong}` : `${clock} UTC`;
  at("told").className = wrong ? "bad" : "";
  document.body.className = wrong ? "stale" : "";
}

async function read() {
  try {
    const answer = await fetch("/ops/data", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const data = await answer.json();
    last = data.at;
    for (const part of [stores, risks, tiles, chart, latency, notices, ssps, budgets, events, behind]) part(data);
    tell(null);
  } catch (error) {
    tell(error instanceof TypeError ? "the server does not answer" : error.message);
  }
}

async function follow() {
  if (!document.hidden) await read();
  setTimeout(follow, EVERY_MS);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
follow();
