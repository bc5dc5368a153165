import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runFolder } from './folders.ts';
import { launchOnFreePorts, portNumbers } from './instance.ts';
import { withLock } from './lock.ts';
import { isRunning, type ProcessIdentity } from './process-identity.ts';
import { services } from './registry.ts';
import { describe, endServer, waitUntilReady } from './server-process.ts';
import { NotAvailable, type Report, type Service, type ServiceName } from './service.ts';

/**
 * given: an environment variable points at it, and it answers · started: by this call · running: since an earlier one ·
 * unavailable: this machine cannot have it · failed: it should work and does not
 */
export type Outcome = 'given' | 'started' | 'running' | 'unavailable' | 'failed';

export interface UpResult {
  name: ServiceName;
  title: string;
  outcome: Outcome;
  version?: string;
  /** Variables for those who want to use it. */
  env: Record<string, string>;
  /** Why it is unavailable or failed. */
  reason?: string;
  tookMs: number;
}

/** What a later call has to know of a server that an earlier one started. */
interface ServiceRecord extends ProcessIdentity {
  name: ServiceName;
  ports: Record<string, number>;
  folder: string;
  /** Where its protocol does not tell. */
  version?: string;
}

/** Sees to it that each of them runs and is ready. Never rejects for a service that does not: the result tells. */
export async function up(names: readonly ServiceName[], report: Report = () => {}): Promise<UpResult[]> {
  return Promise.all(
    names.map(async (name) => {
      const service = services[name];
      const start = performance.now();
      const found = await bringUp(service, (line) => report(`${name}: ${line}`)).catch((error) => ({
        outcome: error instanceof NotAvailable ? ('unavailable' as const) : ('failed' as const),
        env: {},
        reason: describe(error),
      }));
      return { name, title: service.title, ...found, tookMs: Math.round(performance.now() - start) };
    }),
  );
}

type Found = Pick<UpResult, 'outcome' | 'version' | 'env'>;

async function bringUp(service: Service, report: Report): Promise<Found> {
  const given = givenEnvironment(service);
  if (given !== undefined) return { outcome: 'given', env: given, ...versioned(await checkGiven(service, given)) };
  const root = await runFolder();
  return withLock(lockFile(root, service.name), async () => {
    const record = await readRecord(root, service.name);
    if (record !== undefined) {
      const reused = await reuse(service, record);
      if (reused !== undefined) return reused;
      await discard(root, record);
    }
    return await startShared(root, service, report);
  });
}

async function startShared(root: string, service: Service, report: Report): Promise<Found> {
  const installed = await service.install(report);
  const folder = join(root, service.name);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { mode: 0o700 });
  report('starting');
  const { instance, version } = await launchOnFreePorts(
    { service, installed, folder, settings: {} },
    'usual',
    // At once: an `up` that is interrupted leaves a server that `down` must find.
    (server, ports) =>
      writeRecord(root, { name: service.name, ...server, ports, folder, ...versioned(installed.version) }),
  ).catch(async (error) => {
    const record = await readRecord(root, service.name);
    if (record !== undefined) await discard(root, record);
    throw error;
  });
  return { outcome: 'started', env: service.environment(portNumbers(instance.ports)), ...versioned(version) };
}

/** Also one that another `up` was interrupted in starting. Undefined when it is gone or does not get ready. */
async function reuse(service: Service, record: ServiceRecord): Promise<Found | undefined> {
  if (!(await isRunning(record))) return undefined;
  const env = service.environment(portNumbers(record.ports));
  try {
    const version = await waitUntilReady(service, record, env, record.folder);
    return { outcome: 'running', env, ...versioned(version ?? record.version) };
  } catch {
    return undefined;
  }
}

/** Stops what up() started, and removes its data. Resolves with the names of those that ran. */
export async function down(names: readonly ServiceName[]): Promise<ServiceName[]> {
  const root = await runFolder();
  const ended = await Promise.all(
    names.map((name) =>
      withLock(lockFile(root, name), async () => {
        const record = await readRecord(root, name);
        if (record === undefined) return undefined;
        const ran = await isRunning(record);
        await discard(root, record);
        return ran ? name : undefined;
      }),
    ),
  );
  return ended.filter((name) => name !== undefined);
}

export interface Status {
  name: ServiceName;
  title: string;
  state: 'given' | 'running' | 'not answering' | 'stopped';
  version?: string;
  env: Record<string, string>;
  pid?: number;
  ports?: Record<string, number>;
  folder?: string;
  reason?: string;
}

export async function status(names: readonly ServiceName[]): Promise<Status[]> {
  const root = await runFolder();
  return Promise.all(names.map((name) => statusOf(root, services[name])));
}

async function statusOf(root: string, service: Service): Promise<Status> {
  const { name, title } = service;
  const given = givenEnvironment(service);
  const record = given === undefined ? await readRecord(root, name) : undefined;
  if (given === undefined && (record === undefined || !(await isRunning(record)))) {
    return { name, title, state: 'stopped', env: {} };
  }
  const env = given ?? service.environment(portNumbers(record?.ports ?? {}));
  const where = record && { pid: record.pid, ports: record.ports, folder: record.folder };
  try {
    const version = await service.check(env);
    return { name, title, state: given ? 'given' : 'running', env, ...versioned(version ?? record?.version), ...where };
  } catch (error) {
    return { name, title, state: 'not answering', env, reason: describe(error), ...where };
  }
}

function givenEnvironment(service: Service): Record<string, string> | undefined {
  const value = process.env[service.variable];
  return value ? { [service.variable]: value } : undefined;
}

async function checkGiven(service: Service, env: Record<string, string>): Promise<string | undefined> {
  return service.check(env).catch((cause) => {
    const { variable } = service;
    throw new Error(
      `${variable}=${env[variable]} does not work: ${describe(cause)}. Unset ${variable} to have one started`,
      { cause },
    );
  });
}

/** Nothing of it is to be kept, so it need not stop in good order. */
async function discard(root: string, record: ServiceRecord): Promise<void> {
  await endServer(record, 'SIGKILL');
  await rm(record.folder, { recursive: true, force: true });
  await rm(recordFile(root, record.name), { force: true });
}

const recordFile = (root: string, name: ServiceName) => join(root, `${name}.json`);
const lockFile = (root: string, name: ServiceName) => join(root, `${name}.lock`);

async function readRecord(root: string, name: ServiceName): Promise<ServiceRecord | undefined> {
  const text = await readFile(recordFile(root, name), 'utf8').catch(() => undefined);
  return text === undefined ? undefined : JSON.parse(text);
}

async function writeRecord(root: string, record: ServiceRecord): Promise<void> {
  const file = recordFile(root, record.name);
  await writeFile(`${file}.new`, `${JSON.stringify(record)}\n`);
  await rename(`${file}.new`, file);
}

function versioned(version: string | undefined): { version?: string } {
  return version === undefined ? {} : { version };
}
