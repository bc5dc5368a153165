import { defaultSchema } from '../database/identifier.ts';
import type { PartitionChoice } from '../database/migrate-options.ts';

const template = `import { defineConfig } from 'postcommit';
// import { kafka } from 'postcommit/kafka';

export default defineConfig({
  // The database of the outbox. The flag --database-url and the variable DATABASE_URL override it.
  connectionString: process.env.DATABASE_URL,

  // The schema of the outbox. The flag --schema and the variable POSTCOMMIT_SCHEMA override it.
  schema: 'postcommit',

  // How \`npx postcommit migrate\` partitions the log of a new outbox: 'day' or 'month', so that retention drops whole
  // partitions, or 'none', one table that retention deletes from row by row. To change it later:
  // \`npx postcommit partitions convert\`.
  // partitions: 'day',

  // Named handlers by event type. Returning means success, throwing means retry, and \`throw new Reject('…')\` (from
  // 'postcommit') makes the event a dead letter. A handler may be called again with the same event: pass
  // ctx.idempotencyKey to systems that deduplicate. Do not rename handlers: progress is recorded by name.
  // Relays that serve the same queue must have the same handlers, because any of them may claim an event.
  // This handler is an example. Replace it with one for each type that your service emits: an event whose type has neither a
  // handler nor a route fails until it is a dead letter. \`npx postcommit doctor\` names such types.
  handlers: {
    'example.created': {
      'log-event': async (event, ctx) => {
        console.error(\`\${event.type} \${event.aggregate.id}, attempt \${ctx.attempt}\`, event.payload);
      },
    },
  },

  // Brokers and endpoints, and where each event goes (default: to all of them, with its type as topic):
  // destinations: { events: kafka({ brokers: ['localhost:9092'] }) },
  // route: (event) => ({ to: 'events', topic: event.type }),

  // When to retry after a failure: exponential with full jitter, here with its defaults (more than a day in total), or
  // fixed delays: retry: { delaysMs: [1_000, 10_000, 60_000] }.
  // retry: { baseMs: 1_000, capMs: 3_600_000, attemptsMax: 80 },

  // Later events of the aggregate of a dead letter: 'skip' delivers them, 'block' keeps them until you resolve it.
  // poison: 'skip',

  // Limits.
  // inFlightMax: 100,          // events in handlers at the same time
  // inFlightBytesMax: 33_554_432,  // bytes of payloads over 16 KB in flight at once
  // prefetchBytesMax: 33_554_432,  // characters of smaller payloads and headers in memory
  // loadBytesMax: 134_217_728,     // an event with a larger payload becomes a dead letter
  // deliverTimeoutMs: 30_000,  // a handler call that takes longer fails
  // leaseMs: 30_000,           // how soon other relays take over from a frozen process or host
  // stopTimeoutMs: 10_000,     // how long a stop waits for deliveries in flight

  // How long delivered events stay in the log, for lookups and replays.
  // maintenance: { keepEventsMs: 30 * 86_400_000 },

  // Behind a transaction pooler such as PgBouncer, where LISTEN receives nothing: relays then poll every 250 ms at the latest.
  // listen: false,
});
`;

const jsonTemplate = `{
  "schema": "postcommit",
  "handlers": "./handlers.js"
}
`;

/** The config file of `postcommit init` by format. The TypeScript template has no types, so it is also the JavaScript one. */
export const configTemplates = { ts: template, js: template, json: jsonTemplate };

/** The template with these options set. */
export function configTemplateOf(
  format: keyof typeof configTemplates,
  {
    schema = defaultSchema,
    partitions,
  }: { schema?: string | undefined; partitions?: PartitionChoice | undefined } = {},
): string {
  const literal = /^[\w. -]+$/.test(schema) ? `'${schema}'` : JSON.stringify(schema);
  const text =
    format === 'json'
      ? configTemplates.json.replace(`"${defaultSchema}"`, () => JSON.stringify(schema))
      : configTemplates[format].replace(`schema: '${defaultSchema}'`, () => `schema: ${literal}`);
  if (partitions === undefined) return text;
  return format === 'json'
    ? text.replace('",\n', `",\n  "partitions": "${partitions}",\n`)
    : text.replace("// partitions: 'day',", `partitions: '${partitions}',`);
}
