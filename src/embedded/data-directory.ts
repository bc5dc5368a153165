import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PostcommitError } from '../errors.ts';
import { isReachableByOthers, type RunAs } from './postgres-binaries.ts';
import { programFailed, runProgram } from './program.ts';

export interface DataDirectoryOptions {
  dataDirectory: string;
  scratchDirectory: string;
  initdb: string;
  runAs: RunAs | undefined;
  /** False: the folder is removed with this process, so initdb need not sync it to disk. */
  kept: boolean;
}

/** A temporary folder that the user of the server can enter. */
export async function createScratchDirectory(runAs: RunAs | undefined): Promise<string> {
  const preferred = await realpath(tmpdir());
  const parent = runAs === undefined || (await isReachableByOthers(preferred)) ? preferred : '/tmp';
  const directory = await mkdtemp(join(parent, 'postcommit-postgres-'));
  if (runAs !== undefined) await chmod(directory, 0o711);
  return directory;
}

/** Runs initdb unless the folder already has a database of ours. Returns the password of the superuser. */
export async function prepareDataDirectory(options: DataDirectoryOptions): Promise<string> {
  const { dataDirectory, scratchDirectory, runAs, kept } = options;
  const passwordFile = join(dataDirectory, 'postcommit.password');
  const existing = await readFile(passwordFile, 'utf8').catch(() => undefined);
  if (existing !== undefined) return existing.trim();

  const password = randomBytes(18).toString('base64url');
  const passwordForInit = join(scratchDirectory, 'password');
  await writeFile(passwordForInit, `${password}\n`, { mode: 0o600 });
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  if (runAs !== undefined) {
    await Promise.all([passwordForInit, dataDirectory].map((path) => chown(path, runAs.uid, runAs.gid)));
  }
  const flags = ['--encoding=UTF8', '--locale=C', '--username=postgres', '--auth=scram-sha-256'];
  if (!kept) flags.push('--no-sync');
  const program = runProgram(
    options.initdb,
    ['-D', dataDirectory, `--pwfile=${passwordForInit}`, ...flags],
    scratchDirectory,
    runAs,
  );
  const failure = await program.ended;
  if (failure !== undefined) throw programFailed(`initdb failed: ${failure}`, program);
  await rm(passwordForInit);
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
  return password;
}

/**
 * Fails if the folder belongs to another major version. Also detects that npm hoisted the binaries of another version to the
 * place of the requested one.
 */
export async function requireVersion(dataDirectory: string, version: number): Promise<void> {
  const found = (await readFile(join(dataDirectory, 'PG_VERSION'), 'utf8')).trim();
  if (found !== String(version)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_EMBEDDED_POSTGRES',
      `${dataDirectory} belongs to PostgreSQL ${found}, but version ${version} was requested.`,
    );
  }
}

/** Like pg_ctl: the server writes its state into the eighth line of postmaster.pid, independent of its log settings. */
export async function isServerReady(dataDirectory: string, pid: number | undefined): Promise<boolean> {
  const text = await readFile(join(dataDirectory, 'postmaster.pid'), 'utf8').catch(() => '');
  const lines = text.split('\n');
  return lines[0]?.trim() === String(pid) && /^(ready|standby)\s*$/.test(lines[7] ?? '');
}
