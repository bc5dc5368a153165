import { join } from 'node:path';
import { unpackDebianPackage } from './debian-package.ts';
import { findProgram } from './run-command.ts';
import type { Report } from './service.ts';

/** The program that checks and tests rules of Prometheus: the machine's own, or that of the Debian package. */
export async function findPromtool(report: Report): Promise<string> {
  const program = await findProgram('promtool');
  if (program !== undefined) return program;
  const { root } = await unpackDebianPackage({ package: 'prometheus' }, report);
  return join(root, 'usr', 'bin', 'promtool');
}
