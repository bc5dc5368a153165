/** A connection that is used until it is lost, and then replaced. */
export interface BrokerConnection {
  readonly lost: boolean;
  /** Closes it at once. Messages that were not sent yet never are. */
  giveUp(reason: string): void;
  /** Closes it gracefully. Never rejects. */
  close(): Promise<void>;
}

/** How long close() waits for work in flight. */
const flushTimeoutMs = 10_000;

/** Keeps one connection to a broker: opens it on first use, and replaces it once it is lost. */
export class BrokerConnectionKeeper<Connection extends BrokerConnection> {
  readonly #broker: string;
  readonly #connectTimeoutMs: number;
  readonly #connect: (signal: AbortSignal) => Promise<Connection>;
  readonly #underWay = new Set<Promise<unknown>>();
  #connection: Connection | undefined;
  #opening: { connection: Promise<Connection>; abort: AbortController } | undefined;
  #isClosed = false;

  constructor(broker: string, connectTimeoutMs: number, connect: (signal: AbortSignal) => Promise<Connection>) {
    this.#broker = broker;
    this.#connectTimeoutMs = connectTimeoutMs;
    this.#connect = connect;
  }

  async open(signal: AbortSignal): Promise<void> {
    this.#isClosed = false;
    await this.#connected(signal);
  }

  /** Runs `work` with a connection, which is given up when the signal is aborted. Rejects if no connection can be opened. */
  use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
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
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }

  async #use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await this.#connected(signal);
    const giveUp = () => connection.giveUp('no answer in time');
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      if (signal.aborted) giveUp();
      return await work(connection);
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  /** The first caller that runs out of time ends the attempt for all callers: the broker does not answer. */
  async #connected(signal: AbortSignal): Promise<Connection> {
    if (signal.aborted) throw new Error('The call was aborted before it began.');
    if (this.#isClosed) throw new Error('The publisher is closed.');
    if (this.#connection && !this.#connection.lost) return this.#connection;
    this.#opening ??= this.#open();
    const { connection, abort } = this.#opening;
    const giveUp = () => abort.abort(new Error(`${this.#broker} did not answer in time.`));
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      return await connection;
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
        const connection = await this.#connect(abort.signal);
        if (abort.signal.aborted) {
          connection.giveUp('it came too late');
          throw abort.signal.reason;
        }
        this.#connection = connection;
        return connection;
      } finally {
        clearTimeout(timer);
        this.#opening = undefined;
      }
    };
    return { connection: opened(), abort };
  }
}
