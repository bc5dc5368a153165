// A relay with a transactional handler that ends its own process with SIGKILL, at a random point from the effect to COMMIT.
// Arguments: the connection string, how many effects it lets pass before it dies (0: never), and the seed.
import pg from 'pg';
import { createRelay } from '../../src/relay/relay.ts';

const [connectionString = '', lives = '0', seed = '1'] = process.argv.slice(2);
let left = Number(lives);
const kill = () => process.kill(process.pid, 'SIGKILL');
/** After the effect, before the settling; when it is sent; when it is answered and COMMIT is sent. */
const points = ['effect', 'settling', 'commit'] as const;
const point = points[Number(seed) % points.length];
let isLast = false;

const query = pg.Client.prototype.query;
pg.Client.prototype.query = function (this: pg.Client, ...given: unknown[]) {
  const text = typeof given[0] === 'string' ? given[0] : '';
  const isPoint =
    (point === 'settling' && text.includes('settle_in_transaction')) || (point === 'commit' && text === 'commit');
  const answer = (query as (...given: unknown[]) => unknown).apply(this, given);
  if (isLast && isPoint) setImmediate(kill); // The bytes are written by then.
  return answer;
} as typeof query;

const relay = createRelay({
  connectionString,
  leaseMs: 1_000,
  pollIntervalMs: 50,
  logger: false,
  maintenance: false,
  handlers: {
    '*': {
      book: {
        transactional: true,
        handle: async (event, ctx) => {
          await ctx.tx.query('insert into effects (event_id, key, seq) values ($1, $2, $3)', [
            event.id,
            event.key,
            event.seq,
          ]);
          if (lives === '0' || --left > 0) return;
          isLast = true;
          if (point === 'effect') kill();
        },
      },
    },
  },
});
await relay.start();
console.log(JSON.stringify({ event: 'started' }));
process.once('SIGTERM', () => void relay.stop());
