import type { PartitionChoice } from '../database/migrate.ts';

const starter = `import { defineConfig } from 'postcommit';
// import { kafka } from 'postcommit/kafka';

export default defineConfig({
  // The database that holds the outbox. The flag --database-url and the variable DATABASE_URL come first.
  connectionString: process.env.DATABASE_URL,

  // The schema that holds the outbox. The flag --schema and the variable POSTCOMMIT_SCHEMA come first.
  schema: 'postcommit',

  // How \`postcommit migrate\` begins a new outbox: 'day' or 'month' partitions, which retention drops whole, or 'none',
  // one table that is pruned row by row. \`postcommit partitions convert\` changes it later.
  // partitions: 'day',

  // Who gets which events: named handlers by event type. Returning is success, throwing is a retry, and
  // \`throw new Reject('…')\` (from 'postcommit') gives the event up. A handler may be called again with the same
  // event, so hand ctx.idempotencyKey to whatever deduplicates on the other side. Keep the names stable: progress is
  // kept by them.
  handlers: {
    'order.created': {
      'log-it': async (event, ctx) => {
        console.error(\`\${event.type} \${event.aggregate.id}, attempt \${ctx.attempt}\`, event.payload);
      },
    },
  },

  // Brokers and endpoints, and where an event goes (default: everywhere, with its type as topic):
  // destinations: { events: kafka({ brokers: ['localhost:9092'] }) },
  // route: (event) => ({ to: 'events', topic: event.type }),

  // When to try again after a failure: exponential with full jitter, here with its defaults (over a day in all), or
  // fixed delays: retry: { delaysMs: [1_000, 10_000, 60_000] }.
  // retry: { baseMs: 1_000, capMs: 3_600_000, attemptsMax: 80 },

  // What a dead letter does to the following events of its aggregate: 'skip' goes on, 'block' waits for an operator.
  // poison: 'skip',

  // Limits.
  // inFlightMax: 100,          // handlers under way at once
  // inFlightBytesMax: 33_554_432,  // bytes of payloads over 16 KB that are delivered at once
  // prefetchBytesMax: 33_554_432,  // length of smaller payloads and headers that the relay holds
  // loadBytesMax: 134_217_728,     // an event with a larger payload becomes a dead letter
  // deliverTimeoutMs: 30_000,  // a handler that takes longer has failed
  // leaseMs: 30_000,           // how soon a crashed relay's work is taken over
  // stopTimeoutMs: 10_000,     // how long a stop waits for deliveries under way

  // How long delivered events stay in the log, for questions and replays.
  // maintenance: { keepEventsMs: 30 * 86_400_000 },

  // Behind a transaction pooler such as PgBouncer, where LISTEN hears nothing.
  // listen: false,
});
`;

const jsonStarter = `{
  "schema": "postcommit",
  "handlers": "./handlers.js"
}
`;

/** What \`postcommit init\` writes, by format. The TypeScript starter needs no types of its own, so it is JavaScript too. */
export const starters = { ts: starter, js: starter, json: jsonStarter };

/** The same with a choice made about partitions. */
export function starterOf(format: keyof typeof starters, partitions?: PartitionChoice): string {
  const text = starters[format];
  if (partitions === undefined) return text;
  return format === 'json'
    ? text.replace('",\n', `",\n  "partitions": "${partitions}",\n`)
    : text.replace("// partitions: 'day',", `partitions: '${partitions}',`);
}
