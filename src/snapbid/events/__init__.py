"""Server events, version 3 (document 3; contract 7): accepts partners' events, keeps them.

A request flows from `endpoint` (method, key, rate, body) through `validate` to a result, and back
through `answers`; accepted events go to the Redis stream, from which `drain` stores them.

    bytes ── strict_json ─┬─ fast ────┬─ outcomes ── queue ── answers: 202
                          └─ examine ─┤
                                      └─ rulebook: violations ── answers: 400, 422

What an event is:
  fields       types of the catalog: event, field, kind, requirement level
  catalog      the 25 events; structs, readers and the API description are generated from it
  values       what a value of each kind may be, and its stored form
  personal     personal data in plain text, by its key or its value
  rulebook     every rule, warning and error code, and the refusal that they make

How a body is read:
  strict_json  unambiguous JSON, the elements of a batch
  examine      field by field: every violation, every warning, the normalised event
  fast         typed decode of a valid event that has only the catalog's fields
  validate     chooses the path; single events and batches, strict, lenient or in test mode
  outcomes     accepted events, their canonical envelope and id

How a request is answered:
  routes       paths and their names in metrics
  endpoint     HTTP: order of checks, headers, queueing
  keys         API keys and the operator's exchange rates
  enrich       place, device and amounts in USD, for test mode and the drain
  slices       long work in time slices, so that bids do not wait
  answers      documents and errors, each with the code it is counted under

README.md, beside this file, is the page for partners.
"""
