// Plans which suffixes of a cached prefix run together, which of their tokens they share, and what each one sees.
// Knows token ids, no questions. typedecide/packing.py is its twin; both run tests/vectors/packing.json.

/**
 * One continuation of the prefix: its token ids, and the places in `ids` that are read (default: the last).
 *
 * With `branches` it is a joined one: `ids` is the stem, each branch follows the stem and sees no other branch, and
 * `tail` follows them all and sees them all. Read are the last token of each branch, and that of the tail. Branches
 * are a set: what they share from their start is there once, and their order changes nothing.
 * @typedef {object} Suffix
 * @property {ArrayLike<number>} ids
 * @property {ArrayLike<number> | null} [reads]
 * @property {readonly ArrayLike<number>[]} [branches]
 * @property {ArrayLike<number>} [tail]
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
 * @property {Map<number, number[]>} joins for the first token of each tail, the last tokens of the branches that it
 *   sees besides its parent, the stem's last token; all of them stand before it
 */

/** @typedef {ReadonlyMap<number, readonly number[]>} Joins */

/** @type {Joins} */
/** Additive mask value of a token that must not be seen: exact in float32, and safe in float16. */
export const HIDDEN = -1e4;

const NO_JOINS = new Map();

/**
 * Splits `suffixes`, in order, into runs of at most `budget` tokens, shared tokens counted once. Runs are filled from the
 * last suffix back: a suffix joins the run of those behind it while the tokens that it adds fit; otherwise it ends the run
 * before. So the first run is what is left over, and its results are there early. A suffix that is longer than the budget
 * has a run of its own. Tails are never shared.
 * @param {readonly Suffix[]} suffixes
 * @param {number} budget
 * @returns {Run[]}
 * @throws {RangeError} a budget below 1, a suffix without ids or reads, a read outside of its suffix, an empty branch,
 *   branches with reads or without a tail, or a tail without branches
 */
export function planRuns(suffixes, budget) {
  checkPlan(suffixes, budget);
  const starts = startsOf(suffixes, budget);
  return starts.map((start, i) => treeOf(suffixes, start, starts[i + 1] ?? suffixes.length).run());
}

/**
 * The first suffix of each run.
 * @param {readonly Suffix[]} suffixes
 * @param {number} budget
 */
function startsOf(suffixes, budget) {
  const tokens = suffixes.reduce((sum, suffix) => sum + suffixLength(suffix), 0);
  if (tokens <= budget) return suffixes.length > 0 ? [0] : [];
  const starts = [];
  let tree = new Tree();
  for (let index = suffixes.length - 1; index >= 0; index--) {
    tree.add(index, suffixes[index]);
    if (tree.size > budget && tree.suffixes.length > 1) {
      starts.push(index + 1);
      tree = treeOf(suffixes, index, index + 1);
    }
  }
  return [...starts, 0].reverse();
}

/**
 * The tree of the suffixes from one to before another.
 * @param {readonly Suffix[]} suffixes
 * @param {number} from
 * @param {number} to
 */
function treeOf(suffixes, from, to) {
  const tree = new Tree();
  for (let index = from; index < to; index++) tree.add(index, suffixes[index]);
  return tree;
}

/**
 * How many tokens a suffix has where nothing is shared.
 * @param {Suffix} suffix
 */
export function suffixLength({ ids, branches = [], tail = [] }) {
  return ids.length + branches.reduce((sum, { length }) => sum + length, 0) + tail.length;
}

/**
 * How many positions a suffix takes up behind the prefix.
 * @param {Suffix} suffix
 */
export function suffixDepth({ ids, branches = [], tail = [] }) {
  return ids.length + Math.max(0, ...branches.map(({ length }) => length)) + tail.length;
}

/**
 * What each token sees besides the prefix and itself, in ascending order: its ancestors, and what it joins.
 * @param {ArrayLike<number>} parents
 * @param {Joins} [joins]
 * @returns {number[][]}
 * @throws {RangeError} a parent, or a token that is joined, that does not stand before the token
 */
export function ancestors(parents, joins = NO_JOINS) {
  checkTree(parents, joins);
  /** @type {number[][]} */
  const seen = [];
  for (let i = 0; i < parents.length; i++) {
    const own = parents[i] === -1 ? [] : [...seen[parents[i]], parents[i]];
    const joined = (joins.get(i) ?? []).flatMap((end) => [...seen[end], end]);
    seen.push(joined.length === 0 ? own : [...new Set([...own, ...joined])].sort((a, b) => a - b));
  }
  return seen;
}

/**
 * The additive attention mask of a run, tokens × (past + tokens): 0 where a token sees (the whole prefix, what its
 * parent and the tokens that it joins see, these themselves, and itself), `hidden` elsewhere.
 * @param {number} past tokens in the prefix
 * @param {ArrayLike<number>} parents
 * @param {Joins} [joins]
 * @param {number} [hidden] default: exact in float32, and safe in float16
 * @returns {Float32Array<ArrayBuffer>}
 * @throws {RangeError} a parent, or a token that is joined, that does not stand before the token; or a length of the
 *   prefix below 0
 */
export function treeMask(past, parents, joins = NO_JOINS, hidden = HIDDEN) {
  if (!Number.isInteger(past) || past < 0) {
    throw new RangeError(`The length of the prefix must be a whole number from 0, not ${past}.`);
  }
  checkTree(parents, joins);
  const width = past + parents.length;
  const mask = new Float32Array(parents.length * width);
  for (let i = 0; i < parents.length; i++) {
    const row = i * width;
    if (parents[i] === -1) mask.fill(hidden, row + past, row + width);
    else mask.copyWithin(row + past, parents[i] * width + past, (parents[i] + 1) * width);
    for (const end of joins.get(i) ?? []) {
      for (let column = past; column <= past + end; column++) {
        if (mask[end * width + column] === 0) mask[row + column] = 0;
      }
    }
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
  // Tails hang at the ends of their stems, where no suffix can find them to share them.
  /** @type {Map<number, number[]>} */
  tails = new Map();
  /** @type {Map<number, number[]>} */
  joins = new Map();
  /** @type {Suffix[]} */
  suffixes = [];
  /** @type {number[]} */
  indices = [];
  /** @type {number[][]} */
  reads = [];

  /** Tokens to run. */
  get size() {
    return this.ids.length - 1;
  }

  /**
   * Adds suffix number `index`.
   * @param {number} index
   * @param {Suffix} suffix
   */
  add(index, suffix) {
    const path = this.#walk(0, suffix.ids);
    const reads = suffix.branches?.length
      ? this.#join(path[path.length - 1], suffix.branches, suffix.tail ?? [])
      : Array.from(readsOf(suffix), (read) => path[read]);
    this.suffixes.push(suffix);
    this.indices.push(index);
    this.reads.push(reads);
  }

  /**
   * The finished run: nodes become rows, in pre-order.
   * @returns {Run}
   */
  run() {
    const nodes = this.#preorder().slice(1);
    const rowOf = new Int32Array(this.ids.length).fill(-1);
    const depthOf = new Int32Array(this.ids.length).fill(-1);
    /** @type {Run["joins"]} */
    const joins = new Map();
    nodes.forEach((node, row) => {
      rowOf[node] = row;
      depthOf[node] = depthOf[this.parents[node]] + 1;
      const ends = this.joins.get(node);
      if (!ends) return;
      for (const end of ends) depthOf[node] = Math.max(depthOf[node], depthOf[end] + 1);
      joins.set(
        row,
        ends.map((end) => rowOf[end]),
      );
    });
    return {
      ids: nodes.map((node) => this.ids[node]),
      parents: nodes.map((node) => rowOf[this.parents[node]]),
      depths: nodes.map((node) => depthOf[node]),
      rows: this.reads.map((reads) => reads.map((node) => rowOf[node])),
      suffixes: this.indices,
      saved: this.suffixes.reduce((sum, suffix) => sum + suffixLength(suffix), 0) - this.size,
      joins,
    };
  }

  /**
   * Adds branches and a tail behind a stem's last node; the nodes that are read.
   * @param {number} stem
   * @param {readonly ArrayLike<number>[]} branches
   * @param {ArrayLike<number>} tail
   */
  #join(stem, branches, tail) {
    // In the order of their ids: then the order in which they are given changes nothing, not even the last bit.
    const sorted = branches.map((ids, i) => ({ ids, i })).sort((a, b) => compare(a.ids, b.ids));
    const reads = new Array(branches.length).fill(0);
    for (const { ids, i } of sorted) reads[i] = this.#walk(stem, ids)[ids.length - 1];
    const first = this.#add(stem, tail[0]);
    this.tails.set(stem, [...(this.tails.get(stem) ?? []), first]);
    this.joins.set(first, [...new Set(sorted.map(({ i }) => reads[i]))]);
    const rest = this.#walk(first, Array.from(tail).slice(1));
    return [...reads, rest[rest.length - 1] ?? first];
  }

  /**
   * The nodes of `ids` behind a node; those that are not here yet are added.
   * @param {number} node
   * @param {ArrayLike<number>} ids
   */
  #walk(node, ids) {
    /** @type {number[]} */
    const path = [];
    for (let i = 0; i < ids.length; i++) {
      node = this.#child(node, ids[i]) || this.#grow(node, ids[i]);
      path.push(node);
    }
    return path;
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
    const node = this.#add(parent, token);
    if (this.firstChild[parent] === 0) {
      this.firstChild[parent] = node;
    } else {
      const more = this.moreChildren.get(parent) ?? new Map();
      this.moreChildren.set(parent, more.set(token, node));
    }
    return node;
  }

  /**
   * @param {number} parent
   * @param {number} token
   */
  #add(parent, token) {
    this.ids.push(token);
    this.parents.push(parent);
    this.firstChild.push(0);
    return this.ids.length - 1;
  }

  /** All nodes, each before its children; children in the order in which they came, tails after them. */
  #preorder() {
    /** @type {number[]} */
    const order = [];
    const stack = [0];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      if (node >= this.ids.length) continue;
      order.push(node);
      const tails = this.tails.get(node);
      if (tails) for (const tail of [...tails].reverse()) stack.push(tail);
      const more = this.moreChildren.get(node);
      if (more) for (const child of [...more.values()].reverse()) stack.push(child);
      if (this.firstChild[node] !== 0) stack.push(this.firstChild[node]);
    }
    return order;
  }
}

/**
 * The order of two lists of ids, as of words in a dictionary.
 * @param {ArrayLike<number>} a
 * @param {ArrayLike<number>} b
 */
function compare(a, b) {
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
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
    checkJoined(suffix, index);
  });
}

/**
 * @param {Suffix} suffix
 * @param {number} index
 */
function checkJoined({ reads, branches = [], tail = [] }, index) {
  if (branches.length === 0 && tail.length === 0) return;
  if (branches.length === 0) throw new RangeError(`Suffix ${index} has a tail but no branches.`);
  if (tail.length === 0) throw new RangeError(`Suffix ${index} has branches but no tail.`);
  if (reads) throw new RangeError(`Suffix ${index} has branches, which say what is read, and reads.`);
  branches.forEach(({ length }, at) => {
    if (length === 0) throw new RangeError(`Branch ${at} of suffix ${index} has no ids.`);
  });
}

/**
 * @param {ArrayLike<number>} parents
 * @param {Joins} joins
 */
function checkTree(parents, joins) {
  for (let i = 0; i < parents.length; i++) {
    if (!Number.isInteger(parents[i]) || parents[i] < -1 || parents[i] >= i) {
      throw new RangeError(`The parent of token ${i} must be -1 or a token before it, not ${parents[i]}.`);
    }
  }
  for (const [i, ends] of joins) {
    for (const end of ends) {
      if (!Number.isInteger(end) || end < 0 || end >= i || i >= parents.length) {
        throw new RangeError(`Token ${i} of ${parents.length} can join tokens before it only, not ${end}.`);
      }
    }
  }
}
