/**
 * What the runtime holds, counted where it is made: WebAssembly memories, and buffers of a GPU device of ours.
 *
 * ONNX Runtime says nothing of either. Knows no model.
 */

/** @typedef {{buffers: number, bytes: number}} Buffers */

/** The memories made while metered. Weak: what is only forgotten is free too. @type {Set<WeakRef<WebAssembly.Memory>>} */
const memories = new Set();

/**
 * Do something that makes WebAssembly memories, and count them from then on.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function countingMemories(work) {
  const { Memory } = WebAssembly;
  WebAssembly.Memory = class extends Memory {
    /** @param {WebAssembly.MemoryDescriptor} descriptor */
    constructor(descriptor) {
      super(descriptor);
      memories.add(new WeakRef(this));
    }
  };
  try {
    return await work();
  } finally {
    WebAssembly.Memory = Memory;
  }
}

/** Bytes of the WebAssembly memories that are alive; a memory never shrinks, so this is the most that was needed. */
export function memoryBytes() {
  let bytes = 0;
  for (const ref of memories) {
    const memory = ref.deref();
    if (memory) bytes += memory.buffer.byteLength;
    else memories.delete(ref);
  }
  return bytes;
}

/**
 * Count the buffers of a device from now on.
 * @param {GPUDevice} device
 * @returns {() => Buffers} those that are neither destroyed nor collected
 */
export function countBuffers(device) {
  const held = { buffers: 0, bytes: 0 };
  const drop = (/** @type {number} */ size) => {
    held.buffers -= 1;
    held.bytes -= size;
  };
  const forgotten = new FinalizationRegistry(drop);
  const { createBuffer } = device;
  device.createBuffer = (descriptor) => {
    const buffer = createBuffer.call(device, descriptor);
    const { size } = buffer;
    held.buffers += 1;
    held.bytes += size;
    forgotten.register(buffer, size, buffer);
    const { destroy } = buffer;
    buffer.destroy = () => {
      // A buffer may be destroyed twice.
      if (forgotten.unregister(buffer)) drop(size);
      return destroy.call(buffer);
    };
    return buffer;
  };
  return () => ({ ...held });
}
