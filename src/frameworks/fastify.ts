import type { Outbox } from '../emit/outbox.ts';
import { PostcommitError } from '../errors.ts';
import type { Relay } from '../relay/relay.ts';
import { unknownOption } from '../suggest.ts';

/** Options of the Fastify plugin. */
export interface PostcommitFastifyOptions {
  /** What `createOutbox` returns. Every route finds it as `fastify.outbox`. */
  // biome-ignore lint/suspicious/noExplicitAny: the events of any catalogue.
  outbox: Outbox<unknown, never, any>;
  /**
   * What `createRelay` returns: the plugin starts it when the server gets ready, and a relay that cannot start fails the start of
   * the server. It stops it as soon as the server closes, before any `onClose` hook, so that pools which handlers use are open
   * until then. Default: none; relays run elsewhere.
   */
  relay?: Relay;
  /** The name of the decorator: register the plugin once for each outbox, with different names. Default `outbox`. */
  decorator?: string;
}

/** What the plugin uses of a Fastify instance. */
export interface FastifyLike {
  decorate(name: string, value: unknown): unknown;
  addHook(name: 'onReady', hook: () => Promise<void>): unknown;
  addHook(name: 'preClose', hook: () => Promise<void>): unknown;
}

const optionNames: readonly string[] = ['outbox', 'relay', 'decorator'];
/** Options of Fastify's own, which it passes on to every plugin. */
const fastifyOptionNames: readonly string[] = ['prefix', 'logLevel', 'logSerializers'];

/**
 * The Fastify plugin: `fastify.outbox` in every route, and a relay that starts and stops with the server. For Fastify 5, and 4 from
 * 4.16 on. Tell TypeScript the type of the decorator with `declare module 'fastify'`: it has the type of your transactions, which
 * a plugin cannot declare. See docs/frameworks/fastify.md.
 */
export async function postcommit(fastify: FastifyLike, options: PostcommitFastifyOptions): Promise<void> {
  const { outbox, relay, decorator } = resolveOptions(options);
  fastify.decorate(decorator, outbox);
  if (relay === undefined) return;
  fastify.addHook('onReady', () => relay.start());
  // Not onClose: these hooks run in the reverse order of their registration, so a pool that is registered later would close first.
  fastify.addHook('preClose', () => relay.stop());
}

// What fastify-plugin sets: the decorator is for the whole server, not only for the plugin's own scope.
Object.assign(postcommit, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'postcommit',
  [Symbol.for('plugin-meta')]: { name: 'postcommit', fastify: '^4.16.0 || ^5.0.0' },
});

function resolveOptions(given: PostcommitFastifyOptions) {
  const { outbox, relay, decorator = 'outbox' } = given;
  // Not instanceof: the application may have two copies of the package.
  if (typeof outbox?.emit !== 'function') {
    throw fail(
      'The Fastify plugin needs outbox: register(postcommit, { outbox: createOutbox({ db: fromPg(pool) }) }).',
    );
  }
  if (relay !== undefined && (typeof relay?.start !== 'function' || typeof relay.stop !== 'function')) {
    throw fail('relay must be what createRelay() returns, or left out.');
  }
  if (typeof decorator !== 'string' || decorator === '') throw fail('decorator must be the name of a property.');
  const own = Object.fromEntries(Object.entries(given).filter(([name]) => !fastifyOptionNames.includes(name)));
  const unknown = unknownOption(own, optionNames, 'The Fastify plugin');
  if (unknown !== undefined) throw fail(unknown);
  return { outbox, relay, decorator };
}

function fail(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
