/** A connection that is used until it is lost, and then replaced. */
export interface Link {
  readonly lost: boolean;
  /** Ends it without waiting for anybody, so that what was not sent yet never is. */
  giveUp(reason: string): void;
  /** Ends it in good order. Never rejects. */
  close(): Promise<void>;
}

/** How long close() waits for work under way. */
const flushTimeoutMs = 10_000;

/** Keeps one link to a broker: opens it when somebody needs it, and another one when it is lost. */
export class LinkKeeper<L extends Link> {
  readonly #broker: string;
  readonly #connectTimeoutMs: number;
  readonly #openLink: (signal: AbortSignal) => Promise<L>;
  readonly #underWay = new Set<Promise<unknown>>();
  #link: L | undefined;
  #opening: { link: Promise<L>; abort: AbortController } | undefined;
  #isClosed = false;

  constructor(broker: string, connectTimeoutMs: number, openLink: (signal: AbortSignal) => Promise<L>) {
    this.#broker = broker;
    this.#connectTimeoutMs = connectTimeoutMs;
    this.#openLink = openLink;
  }

  async open(signal: AbortSignal): Promise<void> {
    this.#isClosed = false;
    await this.#linked(signal);
  }

  /** The work, with a link that is given up when the signal is aborted. Rejects when there is no link to be had. */
  use<T>(signal: AbortSignal, work: (link: L) => Promise<T>): Promise<T> {
    const call = this.#use(signal, work);
    this.#underWay.add(call);
    return call.finally(() => this.#underWay.delete(call));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#opening?.abort.abort(new Error('The publisher was closed.'));
    let timer: NodeJS.Timeout | undefined;
    const overdue = new Promise((resolve) => {
      timer = setTimeout(resolve, flushTimeoutMs);
    });
    await Promise.race([Promise.allSettled(this.#underWay), overdue]);
    clearTimeout(timer);
    const link = this.#link;
    this.#link = undefined;
    await link?.close();
  }

  async #use<T>(signal: AbortSignal, work: (link: L) => Promise<T>): Promise<T> {
    const link = await this.#linked(signal);
    const giveUp = () => link.giveUp('no answer in time');
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      if (signal.aborted) giveUp();
      return await work(link);
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  /** Whoever runs out of time first ends the attempt for all who wait for it: the broker does not answer. */
  async #linked(signal: AbortSignal): Promise<L> {
    if (signal.aborted) throw new Error('The call was aborted before it began.');
    if (this.#isClosed) throw new Error('The publisher is closed.');
    if (this.#link && !this.#link.lost) return this.#link;
    this.#opening ??= this.#open();
    const { link, abort } = this.#opening;
    const giveUp = () => abort.abort(new Error(`${this.#broker} did not answer in time.`));
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      return await link;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  #open() {
    const abort = new AbortController();
    const overdue = new Error(`${this.#broker} did not answer within ${this.#connectTimeoutMs} ms.`);
    const timer = setTimeout(() => abort.abort(overdue), this.#connectTimeoutMs);
    const opened = async () => {
      try {
        const link = await this.#openLink(abort.signal);
        if (abort.signal.aborted) {
          link.giveUp('it came too late');
          throw abort.signal.reason;
        }
        this.#link = link;
        return link;
      } finally {
        clearTimeout(timer);
        this.#opening = undefined;
      }
    };
    return { link: opened(), abort };
  }
}
