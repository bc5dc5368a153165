import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder } from './folders.ts';
import { findJava } from './java.ts';
import { withLock } from './lock.ts';
import { runCommand } from './run-command.ts';
import { type Installed, NotAvailable, type Report, type Service } from './service.ts';

const version = '3.0.9';
const archive = `https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/${version}/apicurio-registry-app-${version}-all.tar.gz`;
const archiveSha1 = '4deac01752711c32da5662e7b778b61c5e904746';
const downloadTimeoutMs = 300_000;

/** Apicurio Registry, which has Confluent's API too. Everything is in its memory: schemas are gone when it stops. */
export const schemaRegistry: Service = {
  name: 'schema-registry',
  title: 'Apicurio Registry',
  variable: 'SCHEMA_REGISTRY_URL',
  ports: { client: 8081 },
  install,
  environment: (port) => ({ SCHEMA_REGISTRY_URL: `http://127.0.0.1:${port('client')}/apis/ccompat/v7` }),
  check,
};

async function install(report: Report): Promise<Installed> {
  const java = await findJava('Apicurio Registry');
  const cache = cacheFolder();
  await mkdir(cache, { recursive: true });
  const folder = join(cache, `apicurio-registry-${version}`);
  await withLock(`${folder}.lock`, async () => {
    if ((await readdir(folder).catch(() => [])).length === 0) await download(folder, report);
  });
  return {
    version,
    async prepare({ port, settings }) {
      const properties = {
        'quarkus.http.host': '127.0.0.1',
        'quarkus.http.port': String(port('client')),
        'apicurio.storage.kind': 'sql',
        'apicurio.storage.sql.kind': 'h2',
        ...settings,
      };
      const memory = ['-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:-UsePerfData'];
      const options = Object.entries(properties).map(([name, value]) => `-D${name}=${value}`);
      const program = join(folder, `apicurio-registry-app-${version}-runner.jar`);
      return { program: java, args: [...memory, ...options, '-jar', program] };
    },
  };
}

async function download(folder: string, report: Report): Promise<void> {
  report(`fetching Apicurio Registry ${version} from Maven Central (109 MB)`);
  const scratch = await mkdtemp(`${folder}.`);
  try {
    const response = await fetch(archive, { signal: AbortSignal.timeout(downloadTimeoutMs) });
    if (!response.ok) throw new Error(`${archive} is answered with status ${response.status}`);
    const bytes = Buffer.from(await response.arrayBuffer());
    const sha1 = createHash('sha1').update(bytes).digest('hex');
    if (sha1 !== archiveSha1) throw new Error(`${archive} has the SHA-1 ${sha1} instead of ${archiveSha1}`);
    const file = join(scratch, 'archive.tar.gz');
    await writeFile(file, bytes);
    await runCommand('tar', ['-xzf', file], scratch);
    await rm(file);
    // At the end and at once: a folder with this name is complete.
    await rename(scratch, folder);
  } catch (cause) {
    throw new NotAvailable(`Apicurio Registry could not be fetched: ${(cause as Error).message}`, { cause });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function check(environment: Readonly<Record<string, string>>): Promise<string | undefined> {
  const url = `${environment.SCHEMA_REGISTRY_URL}/schemas/types`;
  const response = await fetch(url, { signal: AbortSignal.timeout(3_000) });
  const answer = await response.text();
  if (!response.ok) throw new Error(`${url} is answered with ${response.status} ${answer.slice(0, 200)}`);
  if (!answer.includes('JSON')) throw new Error(`the registry has no JSON schemas: ${answer.slice(0, 200)}`);
  return undefined;
}
