// A relay in a process of its own, for tests that kill it. Its argument is a RelayChildConfig as JSON; it stops on
// SIGTERM. What it has to tell goes to standard output, one JSON object a line.
import { syncBuiltinESMExports } from 'node:module';
import workerThreads, { Worker } from 'node:worker_threads';
import type { RelayOptions } from '../../src/relay/options.ts';
import type { RunOnceOptions } from '../../src/relay/run-once-options.ts';

export interface RelayChildConfig {
  name: string;
  journalPath: string;
  options: Omit<RelayOptions, 'handlers' | 'logger'>;
  /** How far its clock is off. */
  clockSkewMs?: number;
  /** Calls runOnce() instead of start(), and sends its result. */
  once?: RunOnceOptions;
  /** When the thread of its heartbeat ends. */
  threadEnds?: 'onSignal' | 'onLeaseLost';
}

const {
  name,
  journalPath,
  options,
  clockSkewMs = 0,
  once,
  threadEnds,
} = JSON.parse(process.argv[2] ?? '{}') as RelayChildConfig;

if (clockSkewMs !== 0) {
  const TrueDate = Date;
  globalThis.Date = class extends TrueDate {
    constructor(...given: [] | [number]) {
      super(...((given.length === 0 ? [TrueDate.now() + clockSkewMs] : given) as [number]));
    }
    static override now(): number {
      return TrueDate.now() + clockSkewMs;
    }
  } as DateConstructor;
}

const threads: Worker[] = [];
workerThreads.Worker = class extends Worker {
  constructor(...given: ConstructorParameters<typeof Worker>) {
    super(...given);
    threads.push(this);
  }
};
syncBuiltinESMExports();

// After the clock is set, so that nothing has seen the true one.
const { createRelay } = await import('../../src/relay/relay.ts');
const { Journal } = await import('./journal.ts');
const { scriptedHandler } = await import('./scripted-handler.ts');

const tell = (message: object) => console.log(JSON.stringify(message));
const relay = createRelay({
  ...options,
  name,
  handlers: { scripted: { script: scriptedHandler(new Journal(journalPath), name) } },
});
for (const event of ['started', 'stopped', 'relayLost', 'leaseLost', 'fenced', 'released', 'claimed'] as const) {
  relay.on(event, (facts: object) => tell({ event, ...facts }));
}
const endThread = () =>
  void threads
    .at(-1)
    ?.terminate()
    .then(() => tell({ event: 'thread ended' }));
if (threadEnds === 'onLeaseLost') relay.on('leaseLost', endThread);
if (threadEnds === 'onSignal') process.once('SIGUSR2', endThread);
process.once('SIGTERM', () => {
  tell({ event: 'stopping' });
  void relay.stop();
});
if (once) {
  tell({ event: 'started' });
  tell({ event: 'ended', relay: name, result: await relay.runOnce(once) });
} else {
  await relay.start();
}
