import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from './folders.ts';
import { findJava } from './java.ts';
import { withLock } from './lock.ts';
import { findProgram, runCommand } from './run-command.ts';
import { NotAvailable, type Report } from './service.ts';

export interface KafkaFiles {
  java: string;
  classPath: string;
  version: string;
}

/** Apache Kafka's files, collected by Maven at the first call. */
export async function obtainKafka(report: Report): Promise<KafkaFiles> {
  const java = await findJava('Apache Kafka');
  const pom = fileURLToPath(new URL('kafka.pom.xml', import.meta.url));
  const text = await readFile(pom, 'utf8');
  const version = /<kafka\.version>(.+)<\/kafka\.version>/.exec(text)?.[1] ?? 'unknown';
  const cache = cacheFolder();
  await mkdir(cache, { recursive: true });
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 8);
  const folder = join(cache, `kafka-${version}-${digest}`);
  await withLock(`${folder}.lock`, async () => {
    if ((await readdir(folder).catch(() => [])).length === 0) await collect(pom, folder, version, report);
  });
  return { java, classPath: join(folder, '*'), version };
}

async function collect(pom: string, folder: string, version: string, report: Report): Promise<void> {
  const maven = await findProgram('mvn');
  if (maven === undefined) throw new NotAvailable('Maven (mvn) is missing, which fetches Apache Kafka');
  report(`fetching Apache Kafka ${version} with Maven`);
  const scratch = await mkdtemp(`${folder}.`);
  try {
    const goal = ['dependency:copy-dependencies', `-DoutputDirectory=${scratch}`];
    await runCommand(maven, ['--quiet', '--batch-mode', '-ntp', '--file', pom, ...goal], scratch);
    // At the end and at once: a folder with this name is complete.
    await rename(scratch, folder);
  } catch (cause) {
    const { message } = cause as Error;
    throw new NotAvailable(`Apache Kafka could not be fetched: ${/\[ERROR\] (.+)/.exec(message)?.[1] ?? message}`, {
      cause,
    });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
