// Runs the conformance suite over @platformatic/kafka, under a Node that has it, and prints a line for each check.
import module from 'node:module';
import { startService } from '../../../services/private-service.ts';
import { NotAvailable } from '../../../services/service.ts';
import { kafkaReader } from '../kafka-reader.ts';
import { kafkaConformance } from './conformance.ts';

// Node has it from 22.15 on; the types are of the oldest Node that Postcommit runs on.
type Resolve = (specifier: string, context: object, next: Resolve) => unknown;
const { registerHooks } = module as unknown as { registerHooks(hooks: { resolve: Resolve }): void };
// The publisher looks for it where Postcommit is installed.
registerHooks({
  resolve: (specifier, context, next) => {
    const parent = specifier === '@platformatic/kafka' ? { parentURL: import.meta.url } : {};
    return next(specifier, { ...context, ...parent }, next);
  },
});

const server = await startService('kafka').catch((error) => {
  if (!(error instanceof NotAvailable)) throw error;
  console.log(JSON.stringify({ notAvailable: error.message }));
  process.exit();
});
const checks = kafkaConformance({
  reader: kafkaReader(() => server.url),
  broker: () => server.url,
  clientOptions: (brokers) => ({ brokers, client: 'platformatic' }),
  disturbances: { freeze: { freeze: () => server.freeze(), thaw: async () => server.thaw() } },
});
// One check alone, by a part of its name: for a person at work on it.
const [wanted = ''] = process.argv.slice(2);
for (const { name, run } of checks.filter(({ name }) => name.includes(wanted))) {
  const error = await run().then(
    () => undefined,
    (cause) => String(cause?.stack ?? cause),
  );
  console.log(JSON.stringify({ name, error }));
}
await server.remove();
