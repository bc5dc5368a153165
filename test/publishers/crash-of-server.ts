import { expect } from 'vitest';
import type { Message, Publisher } from '../../src/publishers/publisher.ts';
import { until } from '../support/wait.ts';

export interface CrashOptions {
  publisher: Publisher;
  message: () => Message;
  idOf: (message: Message) => string;
  server: { kill(): Promise<void>; start(): Promise<unknown> };
  /** Connects to the server again, to see what it has. */
  observe: () => Promise<void>;
}

/** Kills the server while batches are sent, and starts it again. Returns the ids of what was called delivered before. */
export async function deliverThroughCrash({
  publisher,
  message,
  idOf,
  server,
  observe,
}: CrashOptions): Promise<string[]> {
  const soon = () => AbortSignal.timeout(10_000);
  const delivered: string[] = [];
  let isDown = false;
  const pump = (async () => {
    while (!isDown) {
      const batch = Array.from({ length: 50 }, message);
      const outcomes = await publisher.publish(batch, soon());
      for (const [index, { kind }] of outcomes.entries()) {
        expect(kind).toMatch(/^(delivered|unavailable)$/);
        if (kind !== 'delivered') isDown = true;
        else delivered.push(...batch.slice(index, index + 1).map(idOf));
      }
    }
  })();
  await until(() => delivered.length > 200, { what: 'some are delivered' });
  await server.kill();
  await pump;
  await server.start();
  await observe();
  await until(async () => (await publisher.publish([message()], soon()))[0]?.kind === 'delivered', {
    what: 'it continues',
  });
  return delivered;
}
