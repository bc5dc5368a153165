// A relay with default options, in a process of its own. Its argument is a RelayTask as JSON; it sends RelayNotes by IPC.
import { createRelay } from '../../src/relay/relay.ts';

export interface RelayTask {
  connectionString: string;
  name: string;
  /** Whether its handlers never return. */
  hangs: boolean;
}

export interface TakeoverPayload {
  key: string;
  n: number;
}

export type RelayNote = { note: 'started' } | { note: 'begun' | 'handled'; event: TakeoverPayload };

const { connectionString, name, hangs } = JSON.parse(process.argv[2] ?? '') as RelayTask;
const tell = (note: RelayNote) => void process.send?.(note);

const relay = createRelay({
  connectionString,
  name,
  logger: false, // It reports every relay that is killed.
  handlers: {
    takeover: {
      handle: async (event) => {
        const payload = event.payload as TakeoverPayload;
        tell({ note: 'begun', event: payload });
        if (hangs) await new Promise<never>(() => {});
        tell({ note: 'handled', event: payload });
      },
    },
  },
});
process.once('SIGTERM', () => void relay.stop().then(() => process.disconnect?.()));
await relay.start();
tell({ note: 'started' });
