// Plans which suffixes of a cached prefix run together, which of their tokens they share, and what each one sees.
// Knows token ids, no questions. typedecide/packing.py is its twin; both run tests/vectors/packing.json.

/**
 * One continuation of the prefix: its token ids, and the places in `ids` that are read (default: the last).
 * @typedef {object} Suffix
 * @property {ArrayLike<number>} ids
 * @property {ArrayLike<number> | null} [reads]
 */

/**
 * Suffixes that run in one pass, as a tree of tokens in pre-order: what they share from their start is once.
 * @typedef {object} Run
 * @property {number[]} ids the tokens
 * @property {number[]} parents the index of each token's parent; -1 for a root, which follows the prefix itself
 * @property {number[]} depths 0 for a root; a token's position is the length of the prefix plus its depth
 * @property {number[][]} rows for each suffix of the run, the index in `ids` of each of its reads
 * @property {number[]} suffixes the suffixes of the run, as indices into the list that was planned
 * @property {number} saved how many tokens sharing leaves out
 */

/**
 * Splits `suffixes`, in order, into runs of at most `budget` tokens, shared tokens counted once. A suffix joins the
 * current run while the tokens that it adds fit; otherwise it starts the next one. A suffix that is longer than the
 * budget has a run of its own.
 * @param {readonly Suffix[]} suffixes
 * @param {number} budget
 * @returns {Run[]}
 * @throws {RangeError} a budget below 1, a suffix without ids or reads, or a read outside of its suffix
 */
export function planRuns(suffixes, budget) {
  checkPlan(suffixes, budget);
  /** @type {Run[]} */
  const runs = [];
  let tree = new Tree();
  suffixes.forEach((suffix, index) => {
    let path = tree.match(suffix.ids);
    if (tree.suffixes.length > 0 && tree.size + suffix.ids.length - path.length > budget) {
      runs.push(tree.run());
      tree = new Tree();
      path = [];
    }
    tree.add(index, suffix, path);
  });
  if (tree.suffixes.length > 0) runs.push(tree.run());
  return runs;
}

/**
 * The ancestors of each token, the root first: what it sees besides the prefix and itself.
 * @param {ArrayLike<number>} parents
 * @returns {number[][]}
 * @throws {RangeError} a parent that does not stand before its child
 */
export function ancestors(parents) {
  checkParents(parents);
  /** @type {number[][]} */
  const seen = [];
  for (let i = 0; i < parents.length; i++) {
    seen.push(parents[i] === -1 ? [] : [...seen[parents[i]], parents[i]]);
  }
  return seen;
}

/**
 * The additive attention mask of a run, tokens × (past + tokens): 0 where a token sees (the whole prefix, its
 * ancestors and itself), `hidden` elsewhere.
 * @param {number} past tokens in the prefix
 * @param {ArrayLike<number>} parents
 * @param {number} [hidden]
 * @returns {Float32Array<ArrayBuffer>}
 * @throws {RangeError} a parent that does not stand before its child, or a length of the prefix below 0
 */
export function treeMask(past, parents, hidden = -1e4) {
  if (!Number.isInteger(past) || past < 0) {
    throw new RangeError(`The length of the prefix must be a whole number from 0, not ${past}.`);
  }
  checkParents(parents);
  const width = past + parents.length;
  const mask = new Float32Array(parents.length * width);
  for (let i = 0; i < parents.length; i++) {
    const row = i * width;
    // A token sees what its parent sees, and itself; the prefix stays 0.
    if (parents[i] === -1) mask.fill(hidden, row + past, row + width);
    else mask.copyWithin(row + past, parents[i] * width + past, (parents[i] + 1) * width);
    mask[row + past + i] = 0;
  }
  return mask;
}

/** The tokens of one run. Nodes are numbered as they come; node 0 is the prefix and holds no token. */
class Tree {
  ids = [-1];
  parents = [-1];
  // Nearly every token has one child: only those that branch pay for a Map. 0 is no child.
  firstChild = [0];
  /** @type {Map<number, Map<number, number>>} */
  moreChildren = new Map();
  /** @type {number[]} */
  suffixes = [];
  /** @type {number[][]} */
  reads = [];
  tokens = 0;

  /** Tokens to run. */
  get size() {
    return this.ids.length - 1;
  }

  /**
   * The nodes of the longest start of `ids` that is here.
   * @param {ArrayLike<number>} ids
   */
  match(ids) {
    /** @type {number[]} */
    const path = [];
    let node = 0;
    for (let i = 0; i < ids.length; i++) {
      node = this.#child(node, ids[i]);
      if (node === 0) break;
      path.push(node);
    }
    return path;
  }

  /**
   * Adds suffix number `index`, of which `path` is here already.
   * @param {number} index
   * @param {Suffix} suffix
   * @param {number[]} path
   */
  add(index, suffix, path) {
    let node = path.at(-1) ?? 0;
    for (let i = path.length; i < suffix.ids.length; i++) {
      node = this.#grow(node, suffix.ids[i]);
      path.push(node);
    }
    this.suffixes.push(index);
    this.reads.push(Array.from(readsOf(suffix), (read) => path[read]));
    this.tokens += suffix.ids.length;
  }

  /**
   * The finished run: nodes become rows, in pre-order.
   * @returns {Run}
   */
  run() {
    const nodes = this.#preorder().slice(1);
    const rowOf = new Int32Array(this.ids.length).fill(-1);
    const depthOf = new Int32Array(this.ids.length).fill(-1);
    nodes.forEach((node, row) => {
      rowOf[node] = row;
      depthOf[node] = depthOf[this.parents[node]] + 1;
    });
    return {
      ids: nodes.map((node) => this.ids[node]),
      parents: nodes.map((node) => rowOf[this.parents[node]]),
      depths: nodes.map((node) => depthOf[node]),
      rows: this.reads.map((reads) => reads.map((node) => rowOf[node])),
      suffixes: this.suffixes,
      saved: this.tokens - this.size,
    };
  }

  /**
   * @param {number} node
   * @param {number} token
   */
  #child(node, token) {
    const first = this.firstChild[node];
    if (first === 0 || this.ids[first] === token) return first;
    return this.moreChildren.get(node)?.get(token) ?? 0;
  }

  /**
   * @param {number} parent
   * @param {number} token
   */
  #grow(parent, token) {
    const node = this.ids.length;
    this.ids.push(token);
    this.parents.push(parent);
    this.firstChild.push(0);
    if (this.firstChild[parent] === 0) {
      this.firstChild[parent] = node;
    } else {
      const more = this.moreChildren.get(parent) ?? new Map();
      this.moreChildren.set(parent, more.set(token, node));
    }
    return node;
  }

  /** All nodes, each before its children; children in the order in which they came. */
  #preorder() {
    /** @type {number[]} */
    const order = [];
    const stack = [0];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      order.push(node);
      const more = this.moreChildren.get(node);
      if (more) for (const child of [...more.values()].reverse()) stack.push(child);
      if (this.firstChild[node] !== 0) stack.push(this.firstChild[node]);
    }
    return order;
  }
}

/**
 * @param {Suffix} suffix
 * @returns {ArrayLike<number>}
 */
function readsOf({ ids, reads }) {
  return reads ?? [ids.length - 1];
}

/**
 * @param {readonly Suffix[]} suffixes
 * @param {number} budget
 */
function checkPlan(suffixes, budget) {
  if (!Number.isInteger(budget) || budget < 1) {
    throw new RangeError(`The budget must be a whole number from 1, not ${budget}.`);
  }
  suffixes.forEach((suffix, index) => {
    const count = suffix.ids.length;
    if (count === 0) throw new RangeError(`Suffix ${index} has no ids.`);
    const reads = readsOf(suffix);
    if (reads.length === 0) throw new RangeError(`Suffix ${index} has no reads.`);
    for (let i = 0; i < reads.length; i++) {
      if (!Number.isInteger(reads[i]) || reads[i] < 0 || reads[i] >= count) {
        throw new RangeError(`Suffix ${index} has ${count} ids, none at its read ${reads[i]}.`);
      }
    }
  });
}

/** @param {ArrayLike<number>} parents */
function checkParents(parents) {
  for (let i = 0; i < parents.length; i++) {
    if (!Number.isInteger(parents[i]) || parents[i] < -1 || parents[i] >= i) {
      throw new RangeError(`The parent of token ${i} must be -1 or a token before it, not ${parents[i]}.`);
    }
  }
}
