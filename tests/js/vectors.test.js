// The shared vectors (tests/vectors, written by Python) against the modules of the page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { calibrate, checkCalibration, parseCalibration, serves } from "../../web/calibration.js";
import * as errors from "../../web/errors.js";
import { PointerPrompt, scores } from "../../web/pointer.js";
import { BatchPrior, without } from "../../web/prior.js";
import { Prompt, promptSpec } from "../../web/prompt.js";
import { parseQuestion, parseQuestions } from "../../web/questions.js";
import { read } from "../../web/readout.js";
import { Recent } from "../../web/recent.js";
import * as systemone from "../../web/systemone.js";
import { TextPrompt, gain } from "../../web/text.js";
import { dump, parse } from "../../web/wire_json.js";
import { assertOutcome, assertSame, load, loadTokenizers, numbers } from "./vectors.js";

/** @typedef {import('../../web/questions.js').Question} Question */

test("questions", () => {
  const { questions } = load("questions.json");
  assert.ok(questions.length > 100);
  for (const vector of questions) assertOutcome(vector, () => parseQuestion(vector.input));
});

test("questions do not change what they were given", () => {
  const input = Object.freeze({ type: "choice", criteria: Object.freeze(["a", "b"]) });
  const question = parseQuestion(input);
  assert.ok(
    Object.isFrozen(question) && Object.isFrozen(question.names) && Object.isFrozen(question.criterion),
  );
});

test("batches of questions", () => {
  const { batches } = load("questions.json");
  assert.ok(batches.length > 10);
  for (const vector of batches) {
    // Integer-like ids come first in JavaScript, whatever their place: compare by id.
    const sorted = (/** @type {[string, Question][]} */ pairs) =>
      [...pairs].sort(([left], [right]) => (left < right ? -1 : 1));
    const expected = vector.expect ? { ...vector, expect: sorted(vector.expect) } : vector;
    assertOutcome(expected, () => sorted([...parseQuestions(vector.input)]));
  }
});

test("prompts", () => {
  const { manifest, prompts } = load("prompt.json");
  const prompt = new Prompt(promptSpec(manifest));
  const tokenizers = loadTokenizers();
  assert.ok(prompts.length > 200);
  for (const vector of prompts) {
    const { state, criterion } = vector;
    const tokenizer = tokenizers[vector.tokenizer];
    assertOutcome(vector, () => ({
      head_text: prompt.headText(state),
      tail_text: prompt.tailText(criterion),
      label_ids: prompt.labelIds(criterion),
      head_ids: prompt.headIds(tokenizer),
      state_prefix_ids: prompt.statePrefixIds(tokenizer, state),
      full_ids: prompt.fullIds(tokenizer, state, criterion),
      suffix_ids: prompt.suffixIds(tokenizer, state, criterion),
    }));
  }
});

test("text readout", () => {
  const { manifest, templates, branches, gains } = load("text.json");
  const prompt = new Prompt(promptSpec(manifest));
  const text = new TextPrompt(prompt, templates);
  const tokenizers = loadTokenizers();
  assert.ok(branches.length > 20);
  for (const vector of branches) {
    const tokenizer = tokenizers[vector.tokenizer];
    assertOutcome(vector, () => {
      const question = parseQuestion(vector.question);
      return text.branches(tokenizer, vector.state, prompt.statePrefixIds(tokenizer, vector.state), question);
    });
  }
  for (const { evidence, blank, expect } of gains) assertSame(gain(evidence, blank), expect, "gain");
});

test("pointer readout", () => {
  const { manifest, templates, questions, manifests, scores: found } = load("pointer.json");
  const prompt = new Prompt(promptSpec(manifest));
  const pointer = new PointerPrompt(prompt, templates);
  const tokenizers = loadTokenizers();
  assert.ok(questions.length > 20 && manifests.length > 10 && found.length > 30);
  for (const vector of questions) {
    const tokenizer = tokenizers[vector.tokenizer];
    assertOutcome(vector, () => {
      const question = parseQuestion(vector.question);
      const prefix = prompt.statePrefixIds(tokenizer, vector.state);
      return pointer.joined(tokenizer, vector.state, prefix, question);
    });
  }
  for (const vector of manifests) {
    assertOutcome(vector, () => {
      const { tail, option, answer } = new PointerPrompt(prompt, vector.templates);
      return { tail, option, answer };
    });
  }
  for (const vector of found) {
    assertOutcome(vector, () => scores(numbers(vector.projections), vector.options));
  }
});

test("projections in single precision read as lists do", () => {
  const values = [0.1, 1.7, 0.3, -0.2, 3.3, 0.9, 2.2, 0, 0];
  const single = Float32Array.from(values);
  assert.deepEqual(scores(single, 2), scores([...single], 2));
});

test("manifests", () => {
  const { manifests } = load("prompt.json");
  assert.ok(manifests.length > 20);
  const criterion = { text: "Which team?", options: ["billing: payments, refunds", "other"] };
  for (const vector of manifests) {
    assertOutcome(vector, () => {
      const spec = promptSpec(vector.manifest);
      const prompt = new Prompt(spec);
      return {
        bos_ids: spec.bos_ids,
        labels: spec.labels,
        head_text: prompt.headText("{state} {x}"),
        tail_text: prompt.tailText(criterion),
      };
    });
  }
});

test("readouts", () => {
  const { readouts } = load("readout.json");
  assert.ok(readouts.length > 60);
  for (const vector of readouts) {
    assertOutcome(vector, () => read(parseQuestion(vector.question), numbers(vector.logits)));
  }
});

test("priors", () => {
  const { corrections, sessions } = load("prior.json");
  assert.ok(corrections.length > 30 && sessions.length > 3);
  for (const vector of corrections) {
    assertOutcome(vector, () => without(numbers(vector.logits), numbers(vector.prior)));
  }
  for (const vector of sessions) {
    assertOutcome(vector, () => {
      const prior = new BatchPrior();
      const found = vector.answers.map((/** @type {[string, number[]]} */ [state, logits]) => {
        prior.add(state, logits);
        return { count: prior.count, applies: prior.applies, corrected: prior.correct(logits) };
      });
      return found.slice(-vector.expect.length);
    });
  }
});

test("calibrations", () => {
  const { documents, checks, askings, answers } = load("calibration.json");
  assert.ok(documents.length > 40 && checks.length > 8 && askings.length > 15 && answers.length > 25);
  for (const vector of documents) {
    assertOutcome(vector, () => {
      const { readout, temperatures, alpha, threshold } = parseCalibration(vector.document);
      return { readout, temperatures, alpha, threshold };
    });
  }
  for (const vector of checks) {
    assertOutcome(vector, () => {
      checkCalibration(parseCalibration(vector.document), vector.manifest, vector.format);
      return null;
    });
  }
  for (const vector of askings) {
    const { early_stop, run_tokens, ...how } = vector.how;
    const asking = { ...how, earlyStop: early_stop, runTokens: run_tokens };
    assertOutcome(vector, () => serves(parseCalibration(vector.document), asking));
  }
  for (const vector of answers) {
    assertOutcome(vector, () =>
      calibrate(parseCalibration(vector.document), parseQuestion(vector.question), numbers(vector.logits)),
    );
  }
});

const utf8 = (/** @type {string} */ text) => new TextEncoder().encode(text);

test("System One requests", () => {
  const { requests } = load("systemone.json");
  assert.ok(requests.length > 100);
  for (const vector of requests) {
    assertOutcome(vector, () => {
      try {
        const { model, state, questions, legends } = systemone.parseRequest(utf8(vector.body));
        return {
          model,
          state,
          questions: [...parseQuestions(questions)],
          legends: [...legends].map(([id, levels]) => [id, dump(levels)]),
        };
      } catch (error) {
        if (!(error instanceof errors.InvalidRequestError)) throw error;
        // What a language's own parser says of a fault is its own.
        const faults = /** @type {any[]} */ (error.data.faults).map(({ ctx, ...fault }) => fault);
        throw new errors.InvalidRequestError(error.message, { faults });
      }
    });
  }
  assert.throws(() => systemone.parseRequest(Uint8Array.of(0x22, 0xff, 0x22)), /not UTF-8/);
});

test("System One answers", () => {
  const { answers, cost } = load("systemone.json");
  assert.ok(answers.length > 5);
  for (const vector of answers) {
    const request = systemone.parseRequest(utf8(vector.body));
    assertOutcome(vector, () => {
      const reply = systemone.answered(request, "tiny", { ...cost, answers: vector.answers });
      const written = /** @type {any} */ (parse(utf8(dump(reply.body))));
      const keys = [...written.get("answers")].map(([id, one]) => [
        id,
        [...(one.get("probabilities") ?? [])],
      ]);
      const names = keys.map(([id, pairs]) => [id, pairs.map((/** @type {any[]} */ [name]) => name)]);
      return { ...reply, body: JSON.parse(dump(reply.body)), keys: names };
    });
  }
});

test("System One errors and models", () => {
  const { refusals, models, checks, other } = load("systemone.json");
  assert.ok(refusals.length > 8);
  for (const { name, plain, expect } of refusals) {
    assertSame(systemone.refused(errors.reviveError(plain)), expect, name);
  }
  for (const { name, info, expect } of models) assertSame(systemone.models(info), expect, name);
  for (const vector of checks) {
    const request = { model: vector.model, state: "", questions: new Map(), legends: new Map() };
    assertOutcome(vector, () => systemone.checkModel(request, "tiny") ?? null);
  }
  assertSame(systemone.notFound("/v1/other"), other["not found"], "not found");
  assertSame(systemone.notAllowed("PUT", "POST"), other["not allowed"], "not allowed");
});

test("a Map keeps the order of option names", () => {
  const options = new Map([
    ["10", "ten"],
    ["2", null],
  ]);
  assert.deepEqual(parseQuestion({ type: "choice", criteria: options }).names, ["10", "2"]);
});

test("what was used longest ago goes first", () => {
  /** @type {Recent<string[]>} */
  const recent = new Recent(2, () => []);
  recent.get("a").push("kept");
  assert.deepEqual([recent.get("b"), recent.get("a"), recent.get("c")], [[], ["kept"], []]);
  assert.deepEqual([recent.get("a"), recent.size], [["kept"], 2]);
  recent.clear();
  assert.deepEqual([recent.get("a"), recent.size], [[], 1]);
});

test("typed arrays of logits read as lists do", () => {
  const noul = parseQuestion({ type: "noul", criteria: "Urgent?" });
  assert.deepEqual(read(noul, Float32Array.of(1.5, -2)), read(noul, [1.5, -2]));
});

test("errors keep their class across a worker border", () => {
  for (const [code, known] of errors.ERRORS) {
    const error = new known("message", { value: [1], loc: ["a", 0] });
    const revived = errors.reviveError(structuredClone(error.toJSON()));
    assert.equal(revived.constructor, known);
    assert.equal(revived.name, known.name);
    assert.deepEqual(revived.toJSON(), { code, message: "message", data: { value: [1], loc: ["a", 0] } });
  }
  const unknown = errors.reviveError({ code: "NEWER", message: "message", data: {} });
  assert.equal(unknown.constructor, errors.TypedecideError);
  assert.equal(unknown.code, "NEWER");
});
