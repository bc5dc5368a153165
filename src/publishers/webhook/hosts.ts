interface HostQueue {
  busy: number;
  /** Waiting requests, first come, first served. */
  readonly waiting: Set<() => void>;
}

/** Limits the concurrent requests to one host. Hosts without requests take no memory. */
export class HostSlots {
  readonly #perHostMax: number;
  readonly #hosts = new Map<string, HostQueue>();

  constructor(perHostMax: number) {
    this.#perHostMax = perHostMax;
  }

  /** Takes a slot if one is free, and returns the function that frees it. */
  takeFree(host: string): (() => void) | undefined {
    const queue = this.#queueOf(host);
    if (queue.busy >= this.#perHostMax) return undefined;
    queue.busy += 1;
    return () => this.#giveBack(host, queue);
  }

  /** The same, but waits for its turn. Rejects with the signal's reason once that is aborted. */
  async take(host: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const free = this.takeFree(host);
    if (free !== undefined) return free;
    const queue = this.#queueOf(host);
    await turn(queue, signal);
    return () => this.#giveBack(host, queue);
  }

  #queueOf(host: string): HostQueue {
    let queue = this.#hosts.get(host);
    if (queue === undefined) {
      queue = { busy: 0, waiting: new Set() };
      this.#hosts.set(host, queue);
    }
    return queue;
  }

  #giveBack(host: string, queue: HostQueue): void {
    const [next] = queue.waiting;
    if (next !== undefined) {
      // The slot is handed over: if it were freed first, a new request could take it before the waiting one.
      next();
      return;
    }
    queue.busy -= 1;
    if (queue.busy === 0) this.#hosts.delete(host);
  }
}

function turn(queue: HostQueue, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      queue.waiting.delete(go);
      signal.removeEventListener('abort', giveUp);
    };
    const go = () => {
      leave();
      resolve();
    };
    const giveUp = () => {
      leave();
      reject(signal.reason);
    };
    queue.waiting.add(go);
    signal.addEventListener('abort', giveUp, { once: true });
  });
}
