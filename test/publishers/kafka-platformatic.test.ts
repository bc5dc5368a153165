import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { recordServer } from '../support/servers-used.ts';
import { kafkaConformance } from './kafka-clients/conformance.ts';
import { installKafkaClients } from './kafka-clients/install.ts';
import { kafkaReader } from './kafka-reader.ts';

const script = fileURLToPath(new URL('kafka-clients/platformatic.child.ts', import.meta.url));
// For their names alone: they run in the other process.
const checks = kafkaConformance({
  reader: kafkaReader(() => ''),
  broker: () => 'none:1',
  clientOptions: (brokers) => ({ brokers }),
  disturbances: { freeze: { freeze: async () => {}, thaw: async () => {} } },
});
const errors = new Map<string, string | undefined>();
let reasonToSkip: string | undefined;

describe('the Kafka publisher over @platformatic/kafka', () => {
  beforeAll(async () => {
    try {
      await runChecks(await installKafkaClients());
    } catch (error) {
      if (process.env.CI === 'true') throw error;
      reasonToSkip = (error as Error).message.split('\n', 1)[0] ?? '';
      recordServer(`no @platformatic/kafka (${reasonToSkip})`);
    }
  }, 240_000);

  for (const { name } of checks) {
    it(name, (context) => {
      if (reasonToSkip !== undefined) context.skip(reasonToSkip);
      expect([...errors.keys()]).toContain(name);
      expect(errors.get(name)).toBeUndefined();
    });
  }
});

async function runChecks(node: string): Promise<void> {
  const child = spawn(node, ['--disable-warning=ExperimentalWarning', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const endWithThis = () => child.kill('SIGKILL');
  process.once('exit', endWithThis);
  for await (const line of createInterface({ input: child.stdout })) {
    const { name, error, notAvailable } = JSON.parse(line) as { name: string; error?: string; notAvailable?: string };
    if (notAvailable !== undefined) throw new Error(notAvailable);
    errors.set(name, error);
  }
  process.off('exit', endWithThis);
}
