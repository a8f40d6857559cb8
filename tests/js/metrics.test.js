// The page's figures about labelled answers against typedecide/metrics.py: tests/vectors/metrics.json.

import assert from "node:assert/strict";
import { test } from "node:test";

import { trueOption } from "../../web/app/trust/labels.js";
import * as metrics from "../../web/app/trust/metrics.js";
import { parseQuestion } from "../../web/questions.js";
import { assertSame, load } from "./vectors.js";

/** @type {Record<string, (...values: any[]) => unknown>} by the names of their Python twins */
const TWINS = {
  mean: metrics.mean,
  credit: metrics.credit,
  majority: metrics.majority,
  confusion: metrics.confusion,
  thresholds: metrics.thresholds,
  interval: metrics.interval,
  quantile: metrics.quantile,
  widest: (confidences, credits, error) => metrics.widest(metrics.thresholds(confidences, credits), error),
  at_threshold: (confidences, credits, threshold) =>
    metrics.atThreshold(metrics.thresholds(confidences, credits), threshold),
  reliability: (...values) => {
    const [confidences, credits, binning, bins, weights] = values;
    const found = metrics.reliability(confidences, credits, binning, bins, weights);
    return { bins: found, calibration_error: metrics.calibrationError(found) };
  },
};

for (const [name, twin] of Object.entries(TWINS)) {
  test(name, () => {
    const vectors = load("metrics.json").metrics.filter((/** @type {any} */ one) => one.function === name);
    assert.ok(vectors.length > 0);
    for (const vector of vectors) assertSame(twin(...vector.arguments), vector.expect, vector.name);
  });
}

test("a bootstrap sample has as many clusters as there are, whole ones", () => {
  const values = [0.1, 0.5, 0.9];
  const weights = metrics.resample([0, 0, 1, 2], () => values.shift() ?? 0);
  assert.deepEqual([...weights], [1, 1, 1, 1]);
  assert.deepEqual([...metrics.resample([0, 0, 1], () => 0.99)], [0, 0, 2]);
});

test("labels mean what they mean to the commands", () => {
  const { labels } = load("tables.json");
  assert.ok(labels.length > 15);
  for (const { question, cell, expect } of labels) {
    assert.equal(trueOption(parseQuestion(question), cell), expect, JSON.stringify(cell));
  }
});
