import { afterEach, expect, test, vi } from 'vitest';
import { parseConnectionString } from '../../src/database/connection-string.ts';
import { othersRegainMs } from '../../src/relay/lane/tuning.ts';
import { RelayConnections } from '../../src/relay/relay-connections.ts';
import { Lifecycle } from '../../src/relay/telemetry/lifecycle.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { until } from '../support/wait.ts';

afterEach(() => void vi.restoreAllMocks());

test.each(['claims', 'results'] as const)(
  'the connection for %s is open again, after a long outage too, before other relays stop waiting for the relay',
  async (purpose) => {
    const pauses: number[] = [];
    const realTimeout = setTimeout;
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms = 0) => {
      if (ms > 5_000) return realTimeout(run, ms); // A time limit, not a pause.
      pauses.push(ms);
      return realTimeout(run, 1);
    }) as typeof setTimeout);
    const connections = new RelayConnections({
      servers: parseConnectionString('postgres://relay@127.0.0.1:1/none'), // Nothing listens there.
      name: 'r',
      leaseMs: 30_000,
      logger: silentLogger,
      lifecycle: new Lifecycle(),
      doorbell: { attach: async () => {}, detach: () => {}, proven: true },
    });
    connections[purpose].ensure();
    await until(() => pauses.length > 12, { what: 'it has tried often' });
    await connections.stop();
    expect(Math.max(...pauses)).toBeLessThanOrEqual(othersRegainMs / 2);
  },
);
