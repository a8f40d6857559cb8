// typedecide: all questions about a text in one call.

/**
 * @param {{bundle: string, threads: number, format: string, readout: string, orderings?: number | string}} options
 */
export async function open({ bundle, threads, format, readout, orderings }) {
  const { createEngine } = await import(`/${bundle}/index.js`);
  const engine = await createEngine({ device: "wasm", format, threads });
  return {
    async ask(state, questions, tell) {
      const asked = new Map(questions.map(({ wire }, at) => [`q${at}`, wire]));
      const { answers } = await engine.decide(
        { state, questions: asked },
        { readout, orderings, onAnswer: tell },
      );
      return questions.map((_, at) => answers[`q${at}`].probabilities);
    },
  };
}
