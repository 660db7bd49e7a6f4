"""Server events, version 3 (document 3; contract 7): validates and queues partners' events.

`endpoint` checks a request (method, key, rate, body), `validate` reads its events, `answers` builds
the answer. Accepted events go to a Redis stream, from which `drain` stores them.

    bytes ── strict_json ─┬─ fast ────┬─ outcomes ── queue ── answers: 202
                          └─ examine ─┤
                                      └─ rulebook: violations ── answers: 400, 422

Definition of events:
  fields       types of the catalog: event, field, kind, requirement level
  catalog      every event; structs, readers and the API description are generated from it
  values       checks of values by kind, and their stored form
  personal     personal data in plain text, recognised by key or value
  rulebook     every rule, warning and error code, and the refusals built from them

Reading a body:
  strict_json  unambiguous JSON, the elements of a batch
  examine      field by field: every violation, every warning, the normalised event
  fast         typed decode of a valid event that has only the catalog's fields
  validate     chooses the path; single events and batches; strict, lenient or in test mode
  outcomes     accepted events, their canonical envelope and id

Answering a request:
  endpoint     HTTP: paths, order of checks, headers, queueing
  keys         API keys with their products and limits
  enrich       location, device and amounts in USD, for test mode and the drain
  attribution  the click for which an event counts, for test mode and the drain
  answers      documents and errors, each with the code it is counted under
  turns        time slices for long batches, so that bids do not wait

README.md in this directory is the page for partners.
"""
