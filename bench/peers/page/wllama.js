// wllama (llama.cpp in WASM): a completion of one token for each question.
import { LoggerWithoutDebug, Wllama } from "/packages/wllama/index.js";

// Added to the labels' logits, so that no other token has a share in the probabilities: they are the softmax over the
// labels.
const BIAS = 100;

/**
 * @param {{threads: number, cache: boolean}} options cache: whether what a prompt has in common with the one before is
 *   not computed again
 */
export async function open({ threads, cache }) {
  const logging = { logger: LoggerWithoutDebug, suppressNativeLog: true };
  const wllama = new Wllama({ default: "/packages/wllama/wllama.wasm" }, logging);
  // One slot, so that each prompt finds the one before; the CPU, as for all others.
  const settings = { n_threads: threads, n_ctx: 2048, n_gpu_layers: 0, n_parallel: 1 };
  await wllama.loadModelFromUrl(new URL("/models/model.gguf", location.href).href, settings);
  return {
    async ask(state, questions, tell) {
      const found = [];
      for (const { text, labels } of questions) {
        const done = await wllama.createCompletion({
          prompt: text,
          max_tokens: 1,
          cache_prompt: cache,
          logit_bias: labels.map((id) => [id, BIAS]),
          n_probs: labels.length,
          post_sampling_probs: true,
          samplers: ["temperature"],
          temperature: 1,
          seed: 0,
        });
        const top = done.choices[0].logprobs.content[0].top_probs;
        found.push(labels.map((id) => top.find((one) => one.id === id).prob));
        tell();
      }
      return found;
    },
  };
}
