import { aroundAll, inject, type RunnerTestSuite, type TestContext, TestRunner } from 'vitest';
import { type PrivateService, type PrivateServiceOptions, startService } from '../../services/private-service.ts';
import { services } from '../../services/registry.ts';
import { NotAvailable, type ServiceName } from '../../services/service.ts';
import { recordServer } from './servers-used.ts';

/** The files are there when tests start (see global-setup.ts), so this is start-up alone, on a machine that is busy. */
const startTimeoutMs = 120_000;

/**
 * A server for this test alone, removed with it. Where the machine cannot have one the test is skipped and the summary
 * says why; with CI=true it fails.
 */
export async function privateService(
  name: ServiceName,
  context: TestContext,
  options?: PrivateServiceOptions,
): Promise<PrivateService> {
  try {
    const service = await start(name, options);
    context.onTestFinished(() => service.remove());
    recordServer(titleAndVersion(name, service.version));
    return service;
  } catch (error) {
    return context.skip(reasonToSkip(name, error));
  }
}

/** A server that all tests of a file share. */
export interface FileService {
  /** As the service's environment variable has it: a URL, for Kafka `host:port`. Not before the tests run. */
  readonly url: string;
  /** All its variables, by name. Not before the tests run. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * Whether an environment variable points at a running server. It is not ours, so no test may stop or freeze it. Known
   * while tests are being collected: leave out those that would.
   */
  readonly given: boolean;
  /** The server, to stop and break at will. Throws for one that is given, and before the tests run. */
  readonly own: PrivateService;
  /** `outage` and `freeze` of a conformance harness, to be spread into it; empty for a server that is given. */
  readonly disturbances: {
    outage?: { stop(): Promise<void>; start(): Promise<void> };
    freeze?: { freeze(): Promise<void>; thaw(): Promise<void> };
  };
}

/**
 * One server for all tests of this file: started before any of its hooks, removed after all of them. Call it at the top
 * of the file. Where the machine cannot have it, the whole file is skipped, hooks included, and the summary says why;
 * with CI=true that fails. Where an environment variable (`KAFKA_BROKERS`, …) points at a server, that one is used.
 * With `settings` the server is always a private one: a server from the environment does not have them.
 *
 * @example
 * const redis = fileService('redis');
 * beforeAll(() => connectTo(redis.url));
 * it('survives a restart', () => redis.own.restart());
 */
export function fileService(name: ServiceName, options: PrivateServiceOptions = {}): FileService {
  const given = options.settings === undefined ? givenEnvironment(name) : undefined;
  let own: PrivateService | undefined;
  let env = given;

  // biome-ignore lint/correctness/noEmptyPattern: vitest reads the fixtures that are wanted from this pattern.
  aroundAll(async (runSuite, {}, suite) => {
    try {
      if (given === undefined) {
        own = await start(name, options);
        env = own.env;
        recordServer(titleAndVersion(name, own.version));
      } else {
        recordServer(`${titleAndVersion(name, await services[name].check(given))} (given: never stopped or frozen)`);
      }
    } catch (error) {
      const reason = reasonToSkip(name, error);
      dropHooks(suite);
      TestRunner.getSuiteHooks(suite).beforeEach.push((context) => context.skip(reason));
    }
    try {
      await runSuite();
    } finally {
      await own?.remove();
    }
  }, startTimeoutMs);

  return {
    given: given !== undefined,
    get env() {
      if (env === undefined) throw new Error(`${services[name].title} is not started yet: use it in a hook or a test.`);
      return env;
    },
    get url() {
      return this.env[services[name].variable] ?? '';
    },
    get own() {
      if (own === undefined) throw new Error(`There is no ${services[name].title} of this file's own (yet).`);
      return own;
    },
    get disturbances() {
      if (this.given) return {};
      return {
        outage: { stop: () => this.own.stop(), start: () => this.own.start() },
        freeze: { freeze: () => this.own.freeze(), thaw: async () => this.own.thaw() },
      };
    },
  };
}

async function start(name: ServiceName, options?: PrivateServiceOptions): Promise<PrivateService> {
  const { [name]: missing } = inject('missingServices');
  if (missing !== undefined) throw new NotAvailable(missing);
  return startService(name, options);
}

function givenEnvironment(name: ServiceName): Record<string, string> | undefined {
  const { variable } = services[name];
  const value = process.env[variable];
  return value ? { [variable]: value } : undefined;
}

function titleAndVersion(name: ServiceName, version: string | undefined): string {
  return [services[name].title, version].filter(Boolean).join(' ');
}

/** Throws what is no reason: with CI=true nothing is. */
function reasonToSkip(name: ServiceName, error: unknown): string {
  if (!(error instanceof NotAvailable) || process.env.CI === 'true') throw error;
  recordServer(`no ${services[name].title} (${error.message})`);
  return error.message;
}

/** Suites have no skip() of their own. Their hooks must not run either: they would use a server that is not there. */
function dropHooks(suite: Readonly<RunnerTestSuite>): void {
  const hooks = TestRunner.getSuiteHooks(suite);
  for (const list of [hooks.beforeAll, hooks.afterAll, hooks.beforeEach, hooks.afterEach]) list.length = 0;
  for (const task of suite.tasks) if (task.type === 'suite') dropHooks(task);
}
