// transformers.js: a forward pass for each question, of its whole prompt or of what follows a kept beginning; or one
// generation of a JSON object that answers all of them.
import {
  AutoModelForCausalLM,
  AutoTokenizer,
  DynamicCache,
  Tensor,
  env,
} from "/packages/transformers/transformers.js";

const MOST_NEW_TOKENS = 256;

/**
 * @param {{threads: number, dtype: string, way: "full" | "cached" | "json"}} options
 */
export async function open({ threads, dtype, way }) {
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/models/";
  // The build without WebGPU's asynchronous calls is smaller and faster, and enough on WASM.
  const runtime = new URL("/packages/onnxruntime-web/ort-wasm-simd-threaded", location.href).href;
  env.backends.onnx.wasm.wasmPaths = { mjs: `${runtime}.mjs`, wasm: `${runtime}.wasm` };
  env.backends.onnx.wasm.numThreads = threads;
  const [tokenizer, model] = await Promise.all([
    AutoTokenizer.from_pretrained("export"),
    AutoModelForCausalLM.from_pretrained("export", { dtype, device: "wasm" }),
  ]);
  const encode = (text) => tokenizer.encode(text, { add_special_tokens: false });
  const ways = {
    full: () => askFully(model, encode),
    cached: () => askCached(model, encode),
    json: () => askForJson(model, tokenizer),
  };
  return ways[way]();
}

/** Whole prompts. */
function askFully(model, encode) {
  return {
    async ask(state, questions, tell) {
      const found = [];
      for (const { text, labels } of questions) {
        const outputs = await model(inputs(encode(text), 0));
        found.push(read(outputs.logits, labels));
        tell();
      }
      return found;
    },
  };
}

/** What all prompts about a text begin with is computed once, and its keys and values given to every question. */
function askCached(model, encode) {
  let kept = { head: "", ids: [], cache: null };
  return {
    async ask(state, questions, tell) {
      const { head } = questions[0];
      if (kept.head !== head) {
        // Without the last token, which may merge with what follows.
        const ids = encode(head).slice(0, -1);
        const outputs = await model(inputs(ids, 0));
        kept = { head, ids, cache: new DynamicCache(past(outputs)) };
      }
      const found = [];
      for (const { text, labels } of questions) {
        const ids = encode(text);
        if (kept.ids.some((id, at) => ids[at] !== id))
          throw new Error("the kept tokens do not begin the prompt");
        const given = inputs(ids.slice(kept.ids.length), kept.ids.length);
        const outputs = await model({ ...given, past_key_values: kept.cache });
        found.push(read(outputs.logits, labels));
        tell();
      }
      return found;
    },
  };
}

/** A JSON object with an answer for every question, written by the model. */
function askForJson(model, tokenizer) {
  const engine = {
    note: "",
    async ask(state, questions, tell) {
      const listed = questions.map(({ wire, names }, at) => {
        const quoted = names.map((name) => JSON.stringify(name)).join(", ");
        return `q${at + 1}: ${wire.instructions} One of: ${quoted}.`;
      });
      const keys = questions.map((_, at) => `"q${at + 1}": "..."`).join(", ");
      const content = [
        state,
        `Answer these questions about the text above.\n${listed.join("\n")}`,
        `Reply with JSON only, in this form: {${keys}}`,
      ].join("\n\n");
      const messages = [{ role: "user", content }];
      const given = tokenizer.apply_chat_template(messages, {
        add_generation_prompt: true,
        return_dict: true,
      });
      const output = await model.generate({ ...given, max_new_tokens: MOST_NEW_TOKENS, do_sample: false });
      const length = given.input_ids.dims[1];
      const text = tokenizer.decode(output.tolist()[0].slice(length), { skip_special_tokens: true });
      const answers = parse(text);
      const chosen = questions.map(({ names }, at) => names.indexOf(answers[`q${at + 1}`]));
      engine.note = text;
      return chosen.map((place, at) =>
        place < 0 ? null : questions[at].names.map((_, other) => Number(other === place)),
      );
    },
  };
  return engine;
}

/** The first JSON object in a text; an empty one where there is none. */
function parse(text) {
  try {
    return JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1));
  } catch {
    return {};
  }
}

function inputs(ids, before) {
  const total = before + ids.length;
  return {
    input_ids: new Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]),
    attention_mask: new Tensor("int64", new BigInt64Array(total).fill(1n), [1, total]),
  };
}

function past(outputs) {
  const presents = Object.entries(outputs).filter(([name]) => name.startsWith("present."));
  return Object.fromEntries(
    presents.map(([name, tensor]) => [name.replace("present.", "past_key_values."), tensor]),
  );
}

/** Softmax over the labels' logits at the last position. */
function read(logits, labels) {
  const [, positions, words] = logits.dims;
  const last = logits.data.subarray((positions - 1) * words, positions * words);
  const most = Math.max(...labels.map((id) => last[id]));
  const weights = labels.map((id) => Math.exp(last[id] - most));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}
