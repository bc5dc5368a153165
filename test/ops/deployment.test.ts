import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { createProgram } from '../../src/cli/program.ts';
import { endpointPaths } from '../../src/relay/endpoints.ts';
import { resolveOptions } from '../../src/relay/options.ts';
import { fakeTerminal } from '../cli/fake-terminal.ts';

const { stopTimeoutMs } = resolveOptions({
  connectionString: 'postgres://host/shop',
  handlers: { made: { see: () => {} } },
});
/** After the deliveries in flight, a relay writes results, deregisters and closes its connections. */
const closingMs = 10_000;
const read = (file: string) => readFile(`ops/${file}`, 'utf8');

// biome-ignore lint/suspicious/noExplicitAny: a test knows the fields of the objects it asks for.
async function readManifests(file: string): Promise<any[]> {
  const documents = parseAllDocuments(await read(file));
  for (const document of documents) expect([...document.errors, ...document.warnings]).toEqual([]);
  return documents.map((document) => document.toJS());
}

/** Fails unless the command line has the command and each of its flags. */
function expectCommand([name = '', ...args]: string[]): void {
  const command = createProgram(fakeTerminal().terminal).commands.find((each) => each.name() === name);
  const known = command?.options.map(({ long }) => long);
  expect(command, name).toBeDefined();
  for (const flag of args.filter((arg) => arg.startsWith('--'))) expect(known).toContain(flag);
}

async function mainFile(): Promise<string> {
  return `node_modules/postcommit/${JSON.parse(await readFile('package.json', 'utf8')).bin.postcommit}`;
}

/** The JSON list of the only line of the Dockerfile that begins with this. */
async function instruction(start: string): Promise<string[]> {
  const [line = '', ...more] = (await read('Dockerfile')).split('\n').filter((each) => each.startsWith(`${start} [`));
  expect(more).toEqual([]);
  return JSON.parse(line.slice(start.length));
}

describe('the manifests of Kubernetes', () => {
  test('are a deployment and its disruption budget, for the same pods', async () => {
    const [deployment, budget] = await readManifests('kubernetes/relay.yaml');
    expect([deployment.kind, budget.kind]).toEqual(['Deployment', 'PodDisruptionBudget']);
    const { labels } = deployment.spec.template.metadata;
    expect(labels).toMatchObject(deployment.spec.selector.matchLabels);
    expect(labels).toMatchObject(budget.spec.selector.matchLabels);
    // A budget that never lets a pod go blocks node drains.
    expect(deployment.spec.replicas).toBeGreaterThan(1);
    expect(budget.spec.maxUnavailable).toBe(1);
  });

  test('give a relay the time that it needs to stop', async () => {
    const [deployment] = await readManifests('kubernetes/relay.yaml');
    const graceMs = deployment.spec.template.spec.terminationGracePeriodSeconds * 1_000;
    expect(graceMs).toBeGreaterThanOrEqual(stopTimeoutMs + closingMs);
  });

  test('probe and scrape what a relay serves, on the port where it does', async () => {
    const [deployment] = await readManifests('kubernetes/relay.yaml');
    const { metadata, spec } = deployment.spec.template;
    const [container] = spec.containers;
    const [{ name, containerPort }] = container.ports;
    const probes = [container.startupProbe, container.livenessProbe, container.readinessProbe];
    expect(probes.map(({ httpGet }) => httpGet.path)).toEqual(['/livez', '/livez', '/readyz']);
    for (const { httpGet } of probes) {
      expect(endpointPaths).toContain(httpGet.path);
      expect(httpGet.port).toBe(name);
    }
    expect(endpointPaths).toContain(metadata.annotations['prometheus.io/path']);
    expect(metadata.annotations['prometheus.io/port']).toBe(String(containerPort));
    expect(container.args).toEqual(['relay', '--http-port', String(containerPort), '--http-host', '0.0.0.0']);
    expectCommand(container.args);
  });

  test('migrate with a command that exists', async () => {
    const [job] = await readManifests('kubernetes/migrate.yaml');
    expect(job.kind).toBe('Job');
    expectCommand(job.spec.template.spec.containers[0].args);
  });
});

describe('the Dockerfile', () => {
  test('starts the command line of the package with flags that exist', async () => {
    expect(await instruction('ENTRYPOINT')).toEqual(['node', await mainFile()]);
    const args = await instruction('CMD');
    expectCommand(args);
    expect(await read('Dockerfile')).toContain(`\nEXPOSE ${args[args.indexOf('--http-port') + 1]}\n`);
  });

  test('has a health check that tells a relay that responds from one that does not', async () => {
    const [node, flag, script = ''] = await instruction('  CMD');
    expect([node, flag]).toEqual(['node', '-e']);
    let status = 200;
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/livez' ? status : 404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    expect(script).toContain(':9464/');
    const check = () =>
      promisify(execFile)(process.execPath, ['-e', script.replace(':9464/', `:${port}/`)]).then(
        () => 0,
        (error: { code: number }) => error.code,
      );
    expect(await check()).toBe(0);
    status = 500;
    expect(await check()).toBe(1);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    expect(await check()).toBe(1);
  });
});

test('the unit of systemd starts the relay, and gives it the time that it needs to stop', async () => {
  const unit = await read('systemd/postcommit-relay.service');
  const setting = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1] ?? '';
  const [node, file, ...args] = setting('ExecStart').split(' ');
  expect([node, file]).toEqual(['/usr/bin/node', await mainFile()]);
  expectCommand(args);
  expect(Number(setting('TimeoutStopSec')) * 1_000).toBeGreaterThanOrEqual(stopTimeoutMs + closingMs);
  expect(setting('KillSignal')).toBe('SIGTERM');
  for (const line of unit.split('\n')) expect(line).toMatch(/^(#.*|\[\w+\]|[A-Z]\w+=.+|)$/);
});

test('the package contains the files', async () => {
  expect(JSON.parse(await readFile('package.json', 'utf8')).files).toContain('ops');
});
