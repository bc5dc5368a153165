import { join } from 'node:path';
import { unpackDebianPackage } from './debian-package.ts';
import { findProgram } from './run-command.ts';
import type { Report } from './service.ts';

/** Prometheus, or the program that checks and tests its rules: the machine's own, or that of the Debian package. */
export async function findPrometheusProgram(name: 'prometheus' | 'promtool', report: Report): Promise<string> {
  const program = await findProgram(name);
  if (program !== undefined) return program;
  const { root } = await unpackDebianPackage({ package: 'prometheus' }, report);
  return join(root, 'usr', 'bin', name);
}
