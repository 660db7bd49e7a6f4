/*
 * Makes ../../conformance/cases/privacy/vectors.jsonl.xz: consent strings, written and read by the
 * IAB Tech Lab's own libraries, with what they read. To renew it, here:
 *
 *     npm install && node make.mjs | xz -9e > ../../conformance/cases/privacy/vectors.jsonl.xz
 *
 * A line is {gpp, sid, vendor, gdpr, consent, broken, read}: the signals of a request; whether the
 * string was damaged; and `read`, the fields that the library decoded, by section id (null where it
 * refused). A TCF string's fields are its purposes up to 4, and for the vendor: consent,
 * restrictions ([purpose, type]) and whether it was disclosed (null where the string says nothing).
 */
import { GppModel, HeaderV1 } from "@iabgpp/cmpapi";
import { PurposeRestriction, TCModel, TCString } from "@iabtcf/core";
import { SegmentEncoder } from "./node_modules/@iabtcf/core/lib/mjs/encoder/SegmentEncoder.js";

const US = [
  "uspv1", "usnat", "usca", "usva", "usco", "usut", "usct", "usfl", "usmt", "usor", "ustx", "usde",
  "usia", "usne", "usnh", "usnj", "ustn", "usmn", "usmd", "usin", "usky", "usri",
];
const ids = new Map(US.map((name, index) => [name, index + 6]));
ids.set("tcfeuv2", 2).set("tcfcav1", 5);
const JUDGED = /^(OptOutSale|SaleOptOut|SharingOptOut|TargetedAdvertisingOptOut|SensitiveDataProcessing|KnownChildSensitiveDataConsents|GpcSegmentType|Gpc)$/;
const DAY = new Date(Date.UTC(2026, 0, 2));
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

let state = 20260102;
function random() { // mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (limit) => Math.floor(random() * limit);
const pick = (items) => items[below(items.length)];
const chance = (percent) => random() * 100 < percent;
const some = (items, percent) => items.filter(() => chance(percent));
const numbers = (first, last) => Array.from({ length: last - first + 1 }, (_, at) => first + at);

/* Purposes and vendors: those of interest are granted more often than not. */
const purposes = () => [...some([1, 3, 4], 92), ...some([2, 5, 6, 7, 8, 9, 10], 50)].sort((a, b) => a - b);
function vendors(vendor, percent) {
  const chosen = new Set(chance(percent) ? [vendor] : []);
  const first = 1 + below(900);
  for (const id of chance(30) ? numbers(first, first + below(40)) : []) chosen.add(id);
  for (let left = below(4); left > 0; left--) chosen.add(1 + below(900));
  if (!chance(percent)) chosen.delete(vendor);
  return [...chosen].sort((a, b) => a - b);
}
const restrictions = (vendor) => Array.from({ length: chance(25) ? 1 + below(3) : 0 }, () => ({
  purpose: pick([1, 2, 3, 4, 7]), type: below(3), ids: vendors(vendor, 40),
}));

function europe(vendor) {
  const model = new TCModel();
  Object.assign(model, { cmpId: 300, cmpVersion: 2, consentScreen: 1, policyVersion: 5, version: 2 });
  Object.assign(model, { created: DAY, lastUpdated: DAY, consentLanguage: "EN", publisherCountryCode: "DE" });
  model.vendorListVersion_ = 120;
  model.isServiceSpecific = true;
  model.purposeConsents.set(purposes());
  model.purposeLegitimateInterests.set(some([2, 7, 8, 9, 10], 50));
  model.vendorConsents.set(vendors(vendor, 85));
  model.vendorLegitimateInterests.set(vendors(vendor, 50));
  for (const { purpose, type, ids } of restrictions(vendor)) {
    for (const id of ids) model.publisherRestrictions.add(id, new PurposeRestriction(purpose, type));
  }
  model.publisherRestrictions.gvl_ = { vendorIds: new Set(numbers(1, 1000)) };
  model.vendorsDisclosed.set(vendors(vendor, 85));
  const segments = ["core", ...(chance(50) ? ["vendorsDisclosed"] : []), ...(chance(30) ? ["publisherTC"] : [])];
  return segments.map((segment) => SegmentEncoder.encode(model, segment)).join(".");
}

function readEurope(text, vendor) {
  const model = TCString.decode(text);
  const named = model.publisherRestrictions.getRestrictions(vendor);
  const says = text.split(".").some((segment, at) => at > 0 && /^[I-P]/.test(segment));
  return {
    version: model.version,
    purposes: [...model.purposeConsents.values()].filter((id) => id <= 4),
    consent: model.vendorConsents.has(vendor),
    restrictions: named.map((one) => [one.purposeId, one.restrictionType]),
    disclosed: says ? model.vendorsDisclosed.has(vendor) : null,
  };
}

function setCanada(model, vendor) {
  const flags = (chosen) => numbers(1, 24).map((id) => chosen.includes(id));
  const set = (field, value) => model.setFieldValue("tcfcav1", field, value);
  set("PurposesExpressConsent", flags(purposes()));
  set("PurposesImpliedConsent", flags(purposes()));
  set("VendorExpressConsent", vendors(vendor, 85));
  set("VendorImpliedConsent", vendors(vendor, 50));
  if (chance(50)) set("DisclosedVendors", vendors(vendor, 85));
  set("PubRestrictions", restrictions(vendor).map(({ purpose, type, ids }) => ({
    key: purpose, type, ids, getKey: () => purpose, getType: () => type, getIds: () => ids,
  })));
  set("Created", DAY);
  set("LastUpdated", DAY);
}

function readCanada(section, text, vendor) {
  const says = text.split(".").some((segment, at) => at > 0 && /^[I-P]/.test(segment));
  return {
    version: section.Version,
    purposes: numbers(1, 4).filter((id) => section.PurposesExpressConsent[id - 1]),
    consent: section.VendorExpressConsent.includes(vendor),
    restrictions: section.PubRestrictions
      .filter((one) => one.ids.includes(vendor)).map((one) => [one.key, one.type]),
    disclosed: says ? section.DisclosedVendors.includes(vendor) : null,
  };
}

/* One section of the US: each field mostly allows, so that single opt-outs decide. */
function setState(model, name, refusing) {
  const value = () => (chance(refusing) ? 1 : pick([0, 2, 2]));
  if (name === "uspv1") {
    model.setFieldValue(name, "Notice", pick(["Y", "N", "-"]));
    model.setFieldValue(name, "OptOutSale", chance(40) ? "Y" : pick(["N", "-"]));
    return;
  }
  model.setFieldValue(name, "SaleOptOut", 0);
  if (name === "usnat") model.setFieldValue(name, "Version", pick([1, 2]));
  for (const [field, old] of Object.entries(fieldsOf(model, name))) {
    if (/Version|MspaCovered|SegmentType|SegmentIncluded/.test(field)) continue;
    if (field === "Gpc") {
      model.setFieldValue(name, "GpcSegmentIncluded", chance(60));
      model.setFieldValue(name, "Gpc", chance(12));
    } else if (Array.isArray(old)) {
      model.setFieldValue(name, field, old.map(value));
    } else {
      model.setFieldValue(name, field, JUDGED.test(field) ? value() : below(3));
    }
  }
}
function fieldsOf(model, name) {
  const section = model.getSection(name);
  return Array.isArray(section) ? Object.assign({}, ...section) : section;
}

function gpp(vendor) {
  const model = new GppModel();
  const refusing = pick([0, 0, 1, 3, 10]);
  const names = new Set(Array.from({ length: 1 + below(3) }, () => pick(US)));
  for (const name of names) setState(model, name, refusing);
  if (chance(20)) { setCanada(model, vendor); names.add("tcfcav1"); }
  let text = model.encode();
  if (chance(20)) {
    const inner = europe(vendor);
    const other = new GppModel(text);
    other.decodeSection("tcfeuv2", inner);
    names.add("tcfeuv2");
    text = assemble(other, inner);
  }
  return [text, [...names].map((name) => ids.get(name))];
}
/* The library writes section 2 again from its fields; what it read is put in its place. */
function assemble(model, inner) {
  const [header, ...texts] = model.encode().split("~");
  const at = model.getSectionIds().indexOf(2);
  texts[at] = inner;
  return [header, ...texts].join("~");
}

function readGpp(text, vendor) {
  const [header, ...texts] = text.split("~");
  let listed;
  try {
    listed = new HeaderV1(header).getFieldValue("SectionIds");
  } catch {
    return null;
  }
  if (!/^DB/.test(text) || listed.length !== texts.length || texts.includes("")) return null;
  const result = {};
  for (const [name, id] of ids) {
    const at = listed.indexOf(id);
    if (at < 0) continue;
    try {
      const model = new GppModel();
      if (id !== 2) model.decodeSection(name, texts[at]);
      if (id === 2) result[id] = readEurope(texts[at], vendor);
      else if (id === 5) result[id] = readCanada(fieldsOf(model, name), texts[at], vendor);
      else result[id] = Object.fromEntries(
        Object.entries(fieldsOf(model, name)).filter(([field]) => JUDGED.test(field)),
      );
    } catch {
      result[id] = null;
    }
  }
  return result;
}

function broken(text) {
  const at = below(text.length);
  const letter = pick([...ALPHABET, ".", "~"]);
  switch (below(4)) {
    case 0: return text.slice(0, at);
    case 1: return text.slice(0, at) + letter + text.slice(at + 1);
    case 2: return text.slice(0, at) + letter + text.slice(at);
    default: return text.slice(0, at) + text.slice(at + 1);
  }
}

function listed(held) {
  const chosen = some(held, 75);
  if (chance(3)) chosen.push(pick([0, 1, 3, 4, 28, 29, 99]));
  if (chance(5)) chosen.push(2 + below(26));
  return [...new Set(chosen.length ? chosen : chance(50) ? [-1] : [])].sort((a, b) => a - b);
}

/* Only what decides is kept: of a section that does not apply, Global Privacy Control. */
function line(entry) {
  for (const [id, fields] of Object.entries(entry.sid && entry.read ? entry.read : {})) {
    if (!entry.sid.includes(Number(id))) {
      if (fields?.Gpc) entry.read[id] = { Gpc: true };
      else delete entry.read[id];
    }
  }
  process.stdout.write(`${JSON.stringify(entry)}\n`);
}

for (let left = 14000; left > 0; left--) {
  const vendor = 1 + below(900);
  const [text, held] = gpp(vendor);
  line({ gpp: text, sid: listed(held), vendor, read: readGpp(text, vendor) });
  if (left % 4 === 0) {
    const worse = broken(text);
    line({ broken: 1, gpp: worse, sid: listed(held), vendor, read: readGpp(worse, vendor) });
  }
}
for (let left = 6000; left > 0; left--) {
  const vendor = 1 + below(900);
  const text = europe(vendor);
  line({ consent: text, gdpr: chance(85) ? 1 : 0, vendor, read: { 2: readEurope(text, vendor) } });
  if (left % 4 === 0) {
    const worse = broken(text);
    let read = null;
    try { read = readEurope(worse, vendor); } catch { /* refused */ }
    line({ broken: 1, consent: worse, gdpr: 1, vendor, read: { 2: read } });
  }
}
