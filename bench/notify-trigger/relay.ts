// A relay that only notifications wake, in a process of its own. Answers by IPC when each handler was entered.
import { monotonicMs } from '../clock.ts';

export interface RelayTask {
  connectionString: string;
  schema: string;
  events: number;
}

export interface RelayReport {
  node: string;
  /** By the number in the event's payload. */
  entered: [number: number, enteredAtMs: number][];
}

/** The part of Postcommit that is used here, from the build. */
interface Postcommit {
  createRelay(options: {
    connectionString: string;
    schema: string;
    pollIntervalMs: number;
    handlers: Record<string, Record<string, (event: { payload: unknown }) => Promise<void>>>;
  }): { start(): Promise<void>; stop(): Promise<void> };
}

async function handleAll({ connectionString, schema, events }: RelayTask): Promise<RelayReport> {
  const { createRelay }: Postcommit = await import(new URL('../../dist/index.js', import.meta.url).href);
  const entered: RelayReport['entered'] = [];
  let allHandled = () => {};
  const handled = new Promise<void>((resolve) => {
    allHandled = resolve;
  });
  const note = async ({ payload }: { payload: unknown }) => {
    entered.push([(payload as { number: number }).number, monotonicMs()]);
    if (entered.length === events) allHandled();
  };
  // So long that an event without a notification would be seen as an outlier at once.
  const relay = createRelay({ connectionString, schema, pollIntervalMs: 60_000, handlers: { inserted: { note } } });
  await relay.start();
  process.send?.({ note: 'ready' });
  await handled;
  await relay.stop();
  return { node: process.version, entered };
}

const report = await handleAll(JSON.parse(process.argv[2] ?? '') as RelayTask);
process.send?.(report, () => process.exit(0));
